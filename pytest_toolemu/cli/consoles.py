"""The consoles of commands: results go to stdout, notes and errors to stderr."""

from rich.console import Console

# Emoji codes are off: the line number in ``file:100:`` must not become an emoji.
out = Console(highlight=False, soft_wrap=True, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

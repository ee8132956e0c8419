"""Where commands print: results to stdout, what is the user's to mend to stderr."""

from rich.console import Console

# Without emoji: line 100 is no :100:.
out = Console(highlight=False, soft_wrap=True, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

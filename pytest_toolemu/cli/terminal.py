"""Where commands print: results to stdout, what is the user's to mend to stderr."""

from rich.console import Console

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

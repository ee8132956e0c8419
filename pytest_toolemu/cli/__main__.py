"""``python -m pytest_toolemu.cli``: the command for scripts that know a Python, but not its folder of programs."""

from pytest_toolemu.cli import main

main()

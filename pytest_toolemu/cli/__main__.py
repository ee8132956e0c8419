"""``python -m pytest_toolemu.cli``: the command, where scripts know the Python but not its folder of programs."""

from pytest_toolemu.cli import main

main()

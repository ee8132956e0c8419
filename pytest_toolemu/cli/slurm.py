"""``toolemu slurm``: run a session as a Slurm job array."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from pytest_toolemu.cli.common import out
from pytest_toolemu.errors import UsageError

_SET_BY_SCRIPT: Final = ("--toolemu-shard", "--toolemu-run-dir", "--toolemu-resume")


def slurm(
    options: Annotated[
        list[str], typer.Argument(help="Options and paths for pytest, after '--'.", metavar="-- PYTEST")
    ],
    into: Annotated[
        Path, typer.Option(help="Folder on a shared file system, for scripts, logs, shards, and the merged session.")
    ],
    shards: Annotated[int, typer.Option(min=1, help="Number of shards; each is one task of the array.")] = 8,
    sbatch: Annotated[
        str, typer.Option(help="Options of sbatch, such as '--partition=gpu --time=4:00:00 --gpus=2'.")
    ] = "",
    setup: Annotated[
        str, typer.Option(help="Shell command that each job runs first, such as 'module load cuda/12.4'.")
    ] = "",
) -> None:
    """Write a Slurm job array with one task for each shard, and a job that merges the shards and decides the gates.

    A task that is preempted, or whose node fails, is requeued and resumes with the unfinished cases.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from pytest_toolemu.formats.file_access import write_atomically

    into, directives = into.absolute(), shlex.split(sbatch)
    if name := next((name for name in _SET_BY_SCRIPT for option in options if option.startswith(name)), ""):
        raise UsageError(f"{name} is set for each task by the script; remove it")
    if line := next((line for line in directives if not line.startswith("-") or not line.isprintable()), ""):
        raise UsageError(f"--sbatch: {line!r} is not an option of sbatch; write an option, such as --account=lab")
    if not str(into).isprintable() or '"' in str(into):
        raise UsageError(f"--into: {into} cannot be written into a batch script; name another folder")
    if any((into / "shards").glob("*/*/session.json")):
        raise UsageError(
            f"--into: {into} contains the shards of an earlier session, which a new one would resume; name another "
            f"folder, or continue that session: sbatch {into / 'array.sh'}"
        )
    environment = Environment(
        loader=PackageLoader("pytest_toolemu.cli", "slurm_templates"), undefined=StrictUndefined, trim_blocks=True,
        keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip
    environment.filters["quote"] = lambda value: shlex.quote(str(value))
    (into / "logs").mkdir(parents=True, exist_ok=True)
    for name in ("array.sh", "merge.sh"):
        text = environment.get_template(f"{name}.j2").render(
            name="toolemu-" + re.sub(r"[^\w.-]+", "-", into.name), into=into, folder=Path.cwd(), python=sys.executable,
            options=shlex.join(options), shards=shards, directives=directives, setup=setup,
            reports=[option.partition("=")[2] for option in options if option.startswith("--toolemu-report=")],
        )  # fmt: skip
        write_atomically(into / name, text)
        (into / name).chmod(0o755)
    array, merge = (shlex.quote(str(into / name)) for name in ("array.sh", "merge.sh"))
    out.print(f"{into / 'array.sh'}\n{into / 'merge.sh'}\nsubmit both with:")
    out.print(f'sbatch --dependency="afterany:$(sbatch --parsable {array})" {merge}')

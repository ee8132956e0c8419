"""``toolemu slurm``: a session as a job array."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli.consoles import out


def slurm(  # noqa: PLR0913, PLR0917 - what can be asked of Slurm
    options: Annotated[
        list[str], typer.Argument(help="Options and paths for pytest, after '--'.", metavar="-- PYTEST")
    ],
    into: Annotated[Path, typer.Option(help="A folder that all nodes see, for scripts, logs, shards and the whole.")],
    shards: Annotated[int, typer.Option(min=1, help="Tasks of the array.")] = 8,
    at_once: Annotated[int | None, typer.Option(min=1, help="Tasks that run at once; default: as Slurm likes.")] = None,
    partition: Annotated[str | None, typer.Option(help="Of the cluster.")] = None,
    time: Annotated[str | None, typer.Option(help="Of a task, such as 4:00:00; the rest then goes on.")] = None,
    memory: Annotated[str | None, typer.Option(help="Of a task, such as 64G.")] = None,
    cpus: Annotated[int | None, typer.Option(min=1, help="Of a task.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="Of a task, for models that it serves itself.")] = None,
    module: Annotated[list[str] | None, typer.Option(help="To load first; may be repeated.")] = None,
    venv: Annotated[
        Path | None, typer.Option(help="Virtual environment of the tasks; default: the Python of this command.")
    ] = None,
    restarts: Annotated[int, typer.Option(min=0, help="Starts again at most, when its time was up.")] = 3,
    sbatch: Annotated[
        list[str] | None, typer.Option(help="Another option of sbatch, such as --account=lab; may be repeated.")
    ] = None,
    submit: Annotated[bool, typer.Option("--submit", help="Also submit both jobs.")] = False,
) -> None:
    """Write a Slurm job array of the shards of a session, and a job that merges them and decides.

    A task that is preempted, or whose node fails, starts again and takes over what it had finished.
    """
    from pytest_toolemu.cli import slurm_scripts

    job = slurm_scripts.SlurmJob(
        into=into.absolute(),
        folder=Path.cwd(),
        options=tuple(options),
        shards=shards,
        at_once=at_once,
        partition=partition,
        time=time,
        memory=memory,
        cpus=cpus,
        gpus=gpus,
        modules=tuple(module or ()),
        venv=venv and venv.absolute(),
        restarts=restarts,
        others=tuple(sbatch or ()),
    )
    array, merge = slurm_scripts.write_scripts(job)
    if not gpus and (served := slurm_scripts.needs_gpus(options)):
        names = ", ".join(served)
        out.print(f"note: every task starts a server for {names}; ask for its GPUs with --gpus", markup=False)
    if submit:
        first, second = slurm_scripts.submit_scripts(array, merge)
        out.print(f"array job {first} of {shards} tasks, then job {second}; logs in {into / 'logs'}", markup=False)
    else:
        out.print(f"{array}\n{merge}\nsubmit both with --submit, or:", markup=False)
        out.print(f'sbatch --dependency="afterany:$(sbatch --parsable {shlex.quote(str(array))})" '
                  f"{shlex.quote(str(merge))}", markup=False)  # fmt: skip

"""``toolemu slurm``: run a session as a Slurm job array."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli.common import out


def slurm(  # noqa: PLR0913, PLR0917 - each is an option
    options: Annotated[
        list[str], typer.Argument(help="Options and paths for pytest, after '--'.", metavar="-- PYTEST")
    ],
    into: Annotated[
        Path, typer.Option(help="Folder on a shared file system, for scripts, logs, shards, and the merged session.")
    ],
    shards: Annotated[int, typer.Option(min=1, help="Number of shards; each is one task of the array.")] = 8,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of tasks that run at once; default: no limit.")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Partition of the cluster.")] = None,
    time: Annotated[
        str | None, typer.Option(help="Time limit of a task, such as 4:00:00; an unfinished task is requeued.")
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of a task, such as 64G.")] = None,
    cpus: Annotated[int | None, typer.Option(min=1, help="CPUs of a task.")] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="GPUs of a task, for models that the task serves itself.")
    ] = None,
    module: Annotated[list[str] | None, typer.Option(help="Environment module to load; may be repeated.")] = None,
    venv: Annotated[
        Path | None, typer.Option(help="Virtual environment of the tasks; default: the Python that runs this command.")
    ] = None,
    restarts: Annotated[
        int, typer.Option(min=0, help="Maximum number of times that a task is requeued after its time limit.")
    ] = 3,
    sbatch: Annotated[
        list[str] | None, typer.Option(help="Additional option of sbatch, such as --account=lab; may be repeated.")
    ] = None,
    submit: Annotated[bool, typer.Option("--submit", help="Submit both jobs with sbatch.")] = False,
) -> None:
    """Write a Slurm job array with one task for each shard, and a job that merges the shards and decides the gates.

    A task that is preempted, or whose node fails, is requeued and resumes with the unfinished cases.
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
        out.print(f"note: every task starts a server for {names}; request GPUs for it with --gpus", markup=False)
    if submit:
        first, second = slurm_scripts.submit_scripts(array, merge)
        out.print(f"array job {first} of {shards} tasks, then job {second}; logs in {into / 'logs'}", markup=False)
    else:
        out.print(f"{array}\n{merge}\nsubmit both with --submit, or:", markup=False)
        out.print(f'sbatch --dependency="afterany:$(sbatch --parsable {shlex.quote(str(array))})" '
                  f"{shlex.quote(str(merge))}", markup=False)  # fmt: skip

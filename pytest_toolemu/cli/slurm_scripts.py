"""Writes and submits the two batch scripts of a Slurm job array."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.settings import fallback_parts, judge_models, provider_of

_SET_BY_SCRIPT: Final = ("shard", "run-dir", "resume")
_ROLES: Final = ("agent", "emulator", "builder", "evaluator")


@dataclass(frozen=True)
class SlurmJob:
    """The options of a job array, in the notation of sbatch; None means the cluster's default.

    ``into``, and ``folder`` in which pytest runs, are absolute. ``notice`` is the time in seconds between the signal to
    a task and its time limit. ``restarts`` limits how often a task is requeued. ``others`` are more options of sbatch.
    """

    into: Path
    folder: Path
    options: tuple[str, ...]
    shards: int
    at_once: int | None = None
    partition: str | None = None
    time: str | None = None
    memory: str | None = None
    cpus: int | None = None
    gpus: int | None = None
    modules: tuple[str, ...] = ()
    venv: Path | None = None
    restarts: int = 3
    notice: int = 120
    others: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the job, derived from its folder."""
        return "toolemu-" + re.sub(r"[^\w.-]+", "-", self.into.name)

    def directives(self, *, gpus: bool) -> list[str]:
        """Return the resources as options of sbatch; UsageError for text that is not one option on one line."""
        resources = {
            "partition": self.partition,
            "time": self.time,
            "mem": self.memory,
            "cpus-per-task": self.cpus,
            "gpus": self.gpus if gpus else None,
        }
        lines = [f"--{name}={value}" for name, value in resources.items() if value is not None]
        for line in (*lines, *self.others):
            if not line.startswith("-") or not line.isprintable():
                raise UsageError(
                    f"{line!r} is not an option of sbatch; write an option, such as --sbatch=--account=lab"
                )
        return [*lines, *self.others]


def write_scripts(job: SlurmJob) -> tuple[Path, Path]:
    """Write ``array.sh`` and ``merge.sh``, and create the folder of their logs.

    UsageError if that fails, or if the folder has shards of an earlier session.
    """
    for name in _SET_BY_SCRIPT:
        if any(option.partition("=")[0] == f"--toolemu-{name}" for option in job.options):
            raise UsageError(f"--toolemu-{name} is set for each task by the script; remove it")
    if any((job.into / "shards").glob("*/*/session.json")):
        raise UsageError(
            f"--into: {job.into} contains the shards of an earlier session, which a new one would resume; name another "
            f"folder, or continue that session: sbatch {job.into / 'array.sh'}"
        )
    environment = Environment(
        loader=PackageLoader("pytest_toolemu.cli", "slurm_templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["quote"] = lambda value: shlex.quote(str(value))
    environment.filters["directive"] = _directive
    context = {
        "job": job,
        "python": "python" if job.venv else shlex.quote(sys.executable),
        "options": "".join(f" {shlex.quote(option)}" for option in job.options),
        "whole": job.into / "whole",
        "reports": values_of(job.options, "report"),
    }
    paths = job.into / "array.sh", job.into / "merge.sh"
    texts = [
        environment.get_template(f"{path.name}.j2").render(**context, directives=job.directives(gpus=path == paths[0]))
        for path in paths
    ]
    try:
        (job.into / "logs").mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts, strict=True):
            write_json_text(path, text)
            path.chmod(0o755)
    except OSError as error:
        raise UsageError(f"--into: {job.into} cannot be written: {error.strerror}; name another folder") from None
    return paths


def submit_scripts(array: Path, merge: Path) -> tuple[str, str]:
    """Submit both jobs, the second to run after all tasks of the first, and return their job numbers."""
    first = _sbatch(array)
    return first, _sbatch(f"--dependency=afterany:{first}", merge)


def _sbatch(*arguments: str | Path) -> str:
    try:
        process = subprocess.run(
            ["sbatch", "--parsable", *map(str, arguments)], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        raise UsageError(
            "--submit: sbatch is not installed here; submit the scripts on a login node of the cluster"
        ) from None
    except subprocess.CalledProcessError as error:
        raise UsageError(f"sbatch refused {arguments[-1]}: {error.stderr.strip()}") from None
    return process.stdout.strip().partition(";")[0]


def needs_gpus(options: Sequence[str]) -> list[str]:
    """Return the models for which every task would start its own server."""
    named = [value for role in _ROLES for value in values_of(options, role)]
    try:
        models = [part for value in named for stage in judge_models(value) for part in fallback_parts(stage)]
    except ValueError as error:
        raise UsageError(f"--toolemu-evaluator: expected {error}") from None
    return [name for name in models if provider_of(name) == "vllm" and "@" not in name]


def values_of(options: Iterable[str], name: str) -> list[str]:
    """Return the values of a ``--toolemu`` option, given as ``--toolemu-agent=a`` or ``--toolemu-agent a``."""
    values, value_follows = [], False
    flag = f"--toolemu-{name}"
    for option in options:
        key, equals, value = option.partition("=")
        if value_follows:
            values.append(option)
        elif key == flag and equals:
            values.append(value)
        value_follows = not value_follows and option == flag
    return values


def _directive(value: object) -> str:
    text = str(value)
    if not text.isprintable() or '"' in text:
        raise UsageError(f"--into: {text!r} cannot be written into a batch script; name another folder")
    return f'"{text}"' if " " in text else text

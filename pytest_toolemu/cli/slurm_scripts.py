"""The two scripts of an array, written and submitted."""

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
from pytest_toolemu.formats.atomic_write import write_json_text
from pytest_toolemu.settings import provider_of

_OURS: Final = ("shard", "run-dir", "resume")
_ROLES: Final = ("agent", "emulator", "evaluator")


@dataclass(frozen=True)
class SlurmJob:
    """What is asked of Slurm, in its own words: ``time`` is ``4:00:00``, ``memory`` ``64G``; None leaves the cluster's.

    ``into`` and ``folder``, in which pytest runs, are absolute. ``notice`` is how many seconds before its time is up a
    task is told, ``restarts`` how often it goes on after that. ``others`` are further options of sbatch.
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
        """Of the job, from the folder's."""
        return "toolemu-" + re.sub(r"[^\w.-]+", "-", self.into.name)

    def directives(self, *, gpus: bool) -> list[str]:
        """Resources as options of sbatch. UsageError for what would be more than a line of a script."""
        asked = {
            "partition": self.partition,
            "time": self.time,
            "mem": self.memory,
            "cpus-per-task": self.cpus,
            "gpus": self.gpus if gpus else None,
        }
        lines = [f"--{name}={value}" for name, value in asked.items() if value is not None]
        for line in (*lines, *self.others):
            if not line.startswith("-") or not line.isprintable():
                raise UsageError(f"{line!r} is no option of sbatch; write one, such as --sbatch=--account=lab")
        return [*lines, *self.others]


def write_scripts(job: SlurmJob) -> tuple[Path, Path]:
    """Write ``array.sh`` and ``merge.sh``, and make the folder of their logs. UsageError where that cannot be."""
    for name in _OURS:
        if any(option.partition("=")[0] == f"--toolemu-{name}" for option in job.options):
            raise UsageError(f"--toolemu-{name} is set for each task by the script; leave it out")
    environment = Environment(
        loader=PackageLoader("pytest_toolemu.cli", "slurm_templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["quote"] = lambda value: shlex.quote(str(value))
    environment.filters["directive"] = _directive
    words = {
        "job": job,
        "python": "python" if job.venv else shlex.quote(sys.executable),
        "options": "".join(f" {shlex.quote(option)}" for option in job.options),
        "whole": job.into / "whole",
        "reports": values_of(job.options, "report"),
    }
    paths = job.into / "array.sh", job.into / "merge.sh"
    texts = [
        environment.get_template(f"{path.name}.j2").render(**words, directives=job.directives(gpus=path == paths[0]))
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
    """Have Slurm run both, the second after every task of the first has ended; their job numbers."""
    first = _sbatch(array)
    return first, _sbatch(f"--dependency=afterany:{first}", merge)


def _sbatch(*arguments: str | Path) -> str:
    try:
        done = subprocess.run(
            ["sbatch", "--parsable", *map(str, arguments)], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        raise UsageError("--submit: there is no sbatch here; submit the scripts where there is one") from None
    except subprocess.CalledProcessError as error:
        raise UsageError(f"sbatch refused {arguments[-1]}: {error.stderr.strip()}") from None
    return done.stdout.strip().partition(";")[0]


def needs_gpus(options: Sequence[str]) -> list[str]:
    """Models for which every task would start a server of its own."""
    named = (value for role in _ROLES for value in values_of(options, role))
    return [name for name in named if provider_of(name) == "vllm" and "@" not in name]


def values_of(options: Iterable[str], knob: str) -> list[str]:
    """What options of pytest say of a knob: ``--toolemu-agent=a``, ``--toolemu-agent b``."""
    found, wanted = [], False
    for option in options:
        name, equals, value = option.partition("=")
        if wanted:
            found.append(option)
        elif name == f"--toolemu-{knob}" and equals:
            found.append(value)
        wanted = not wanted and option == f"--toolemu-{knob}"
    return found


def _directive(value: object) -> str:
    text = str(value)
    if not text.isprintable() or '"' in text:
        raise UsageError(f"--into: {text!r} cannot be written into a batch script; name another folder")
    return f'"{text}"' if " " in text else text

"""What commands share: consoles, settings, session folders, and the work with models."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from rich.console import Console

from pytest_toolemu.errors import NotRunError, UsageError
from pytest_toolemu.formats.redaction import REGISTRY
from pytest_toolemu.formats.text import counted, visible

if TYPE_CHECKING:
    from pytest_toolemu.analysis.cost_estimate import CostEstimate
    from pytest_toolemu.components import Components
    from pytest_toolemu.models.batch_queue import Batches
    from pytest_toolemu.models.endpoint import Endpoint
    from pytest_toolemu.settings.option_table import Settings


# Markup and emoji codes are off: the line number in ``file:100:`` must not become an emoji.
out = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False, markup=False)


def read_line(prompt: str, end: str = "") -> str:
    """Return what the person types; ``end`` at the end of the input."""
    try:
        return out.input(prompt, markup=False).strip()
    except EOFError:
        return end


def split_commas(values: list[Any] | None) -> list[Any] | None:
    """Return the values of a list option, in which commas separate values as well."""
    return values and [type(value)(part.strip()) for value in values for part in str(value).split(",") if part.strip()]


def command_settings(options: dict[str, Any], implied: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings from these options, the environment, and ``.env``; warn of unknown variables.

    ``implied`` are options that apply unless an option or a variable sets another value.
    """
    from pytest_toolemu.settings.resolution import load_env, resolve, toolemu_variables, unknown_variables

    env_file = Path(".env")
    load_env(env_file)
    REGISTRY.remember()
    for variable in unknown_variables({*os.environ, *toolemu_variables(env_file)}):
        err.print(f"warning: {variable} is not a known setting and has no effect")
    for key, value in (implied or {}).items():
        if options.get(key) is None and not os.environ.get(key.upper()):
            options = {**options, key: value}
    # A variable for pytest says nothing about a command that judges.
    return replace(resolve(options.get, lambda _: None, os.environ), judge_later=False)


def model_settings(concurrency: int | None) -> Settings:
    """Return the settings of a command that asks one model, from ``TOOLEMU_*`` variables and the defaults."""
    return command_settings({"toolemu_concurrency": concurrency})


def draft_settings(judge: str | None) -> Settings:
    """Return the settings of checks on drafts: the judge, if any, is the only evaluator besides each case's checks."""
    return command_settings({"toolemu_evaluator": [judge] if judge else ["checks"]})


T = TypeVar("T")
C = TypeVar("C")
Job = Callable[[], Awaitable[T]]


def with_model(settings: Settings, name: str, work: Callable[[Endpoint], Awaitable[T]]) -> T:
    """Create a model, check its endpoint, run ``work``, and close the connection."""
    return with_components(settings, lambda components: components.models.model(name), work)


def with_components(
    settings: Settings,
    create: Callable[[Components], C],
    work: Callable[[C], Awaitable[T]],
    batches: Batches | None = None,
) -> T:
    """Run ``work`` with what ``create`` builds, under the budget of the settings or of the batches."""
    import asyncio

    from pytest_toolemu.components import Components
    from pytest_toolemu.models.model_pool import ModelPool
    from pytest_toolemu.scheduling.budget import Budget
    from pytest_toolemu.sessions.single_run import prices_of_settings

    budget = batches.budget if batches else Budget(settings.budget_usd, settings.budget_tokens)
    prices = partial(prices_of_settings, settings) if budget.usd is not None else None

    async def main() -> T:
        components = Components(settings, ModelPool(settings, budget=budget, prices=prices, batches=batches))
        try:
            created = create(components)
            await components.preflight(())
            return await work(created)
        finally:
            await components.models.close()

    return asyncio.run(main())


async def run_concurrently(jobs: Sequence[Job[T]], limit: int, title: str = "judging") -> list[T]:
    """Return the results of all jobs in their order, with at most ``limit`` jobs at once and a progress bar.

    The first error cancels all jobs. If the budget is spent, running jobs are completed first, because their requests
    are already paid for.
    """
    import asyncio

    semaphore = asyncio.Semaphore(limit)

    with _bar(len(jobs), title) as advance:

        async def bounded(job: Job[T]) -> T | NotRunError:
            async with semaphore:
                try:
                    result = await job()
                except NotRunError as error:
                    return error
            advance()
            return result

        results = await asyncio.gather(*map(bounded, jobs))
    for result in results:
        if isinstance(result, NotRunError):
            names_option = "--toolemu-" in str(result)
            hint = "; for this command, set it as a variable, such as TOOLEMU_BUDGET_TOKENS" if names_option else ""
            raise NotRunError(f"{result}{hint}")
    return [result for result in results if not isinstance(result, NotRunError)]


@contextmanager
def _bar(total: int, title: str) -> Iterator[Callable[[], None]]:
    from rich.progress import Progress

    with Progress(console=err, disable=not err.is_terminal, transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)


def print_estimate(estimate: CostEstimate, settings: Settings, subject: str) -> None:
    """Print an estimate at the prices of the settings. ``subject`` is what it is for, such as ``4 runs``."""
    from pytest_toolemu.reporting.summary_table import estimate_lines
    from pytest_toolemu.sessions.single_run import prices_of_settings

    width = out.width if out.is_terminal else None
    for line in estimate_lines(estimate, prices_of_settings(settings), subject, width):
        out.print(visible(line))


# The files from which pytest may read the ini key toolemu_run_dir.
_INI_FILES: Final = ("pytest.toml", "pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_RUN_DIR: Final = re.compile(r"^[ \t]*toolemu_run_dir[ \t]*=(.*)$", re.MULTILINE)


def session_folder(text: str) -> Path:
    """Return the session folder for an argument; for ``latest``, the newest session, or UsageError if there is none."""
    from pytest_toolemu.settings.option_table import LATEST

    if text != LATEST:
        return Path(text)
    folder = _latest()
    err.print(f"{LATEST}: {folder}")
    return folder


_SESSIONS: Final = typer.Argument(
    parser=session_folder,
    metavar="SESSION",
    help="Session folders, as printed after 'records:' at the end of a session; latest is the newest session.",
)
Sessions = Annotated[list[Path], _SESSIONS]
OptionalSessions = Annotated[list[Path] | None, _SESSIONS]
Session = Annotated[Path, typer.Argument(parser=session_folder, metavar="SESSION", help="Session folder, or latest.")]


def note_superseded(folders: list[Path]) -> None:
    """Print how many runs are in several of these sessions, or have several evaluations; each run counts once."""
    from pytest_toolemu.sessions.store import RUNS, newest_evaluations, run_files, superseded_files

    sessions_of = Counter(path.name for folder in set(folders) for path in folder.glob(RUNS))
    repeated = {name for name, sessions in sessions_of.items() if sessions > 1}
    if count := len(repeated | {path.name for path in superseded_files(folders)}):
        runs, verb = counted(count, "run"), "is" if count == 1 else "are"
        err.print(
            f"note: {runs} {verb} in several of these sessions; only the one in the session that resumed the others "
            "counts, or else the one in the last session"
        )
    files = run_files(folders)
    if count := len(files) - len(newest_evaluations(files)):
        err.print(
            f"note: {count:,} older evaluations of runs that were judged again are ignored; each run counts once, "
            "with its newest evaluation"
        )


def _latest() -> Path:
    """Return the newest session of the project.

    A session without runs counts too, because an older session must not be taken for the newest.
    """
    from pytest_toolemu.sessions.store import MANIFEST

    searched = list(_run_directories())
    for directory in searched:
        # Names of sessions begin with their time; folders with other names were created by the user.
        if folders := sorted(path.parent for path in directory.glob(f"2*-*/{MANIFEST}")):
            return Path(os.path.relpath(folders[-1]))
    start = os.path.relpath(searched[0])
    raise UsageError(
        f"latest: there is no session in {start} or in a folder above it; run pytest with --toolemu-agent first, name "
        "the folder of a session, or set TOOLEMU_RUN_DIR if sessions are kept elsewhere"
    )


def run_directory() -> Path:
    """Return the run directory of the project; UsageError if neither the current folder nor one above it has any."""

    searched = list(_run_directories())
    existing = next((directory for directory in searched if directory.is_dir()), None)
    if existing is None:
        raise UsageError(
            f"there is no run directory {os.path.relpath(searched[0])} here or in a folder above; run pytest with "
            "--toolemu-agent first, or name the folder of your sessions"
        )
    return Path(os.path.relpath(existing))


def _run_directories() -> Iterator[Path]:
    """Yield the run directory of the current folder, then of the folders above it, up to the root of the project."""
    from pytest_toolemu.settings.resolution import toolemu_variables

    current_folder = Path.cwd()
    for folder in (current_folder, *current_folder.parents):
        variables = toolemu_variables(folder / ".env") | os.environ
        yield folder / (variables.get("TOOLEMU_RUN_DIR") or _from_ini(folder) or ".toolemu")
        if any((folder / name).exists() for name in (".git", *_INI_FILES)):
            return


def _from_ini(folder: Path) -> str:
    """Return ``toolemu_run_dir`` from the folder's ini file; empty without a readable one."""
    for name in _INI_FILES:
        with contextlib.suppress(OSError, ValueError):
            if match := _RUN_DIR.search((folder / name).read_text(encoding="utf-8")):
                return match[1].strip().strip("\"'")
    return ""

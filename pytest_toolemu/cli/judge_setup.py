"""What ``toolemu judge`` and ``toolemu calibrate`` share: options, settings, record folders, and judges."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from pytest_toolemu.cli.consoles import err

if TYPE_CHECKING:
    from pytest_toolemu.analysis.recheck import CurrentCases
    from pytest_toolemu.components import Components
    from pytest_toolemu.core.case_vocabulary import Metric
    from pytest_toolemu.core.protocols import Evaluator
    from pytest_toolemu.models.endpoint import Endpoint
    from pytest_toolemu.sessions.store import RunStore
    from pytest_toolemu.settings import Settings

T = TypeVar("T")
C = TypeVar("C")
Job = Callable[[], Awaitable[T]]
Judges = list[tuple["Metric", "Evaluator"]]

Evaluators = Annotated[
    list[str] | None,
    typer.Option("--evaluator", metavar="SPEC", help="A model as judge, or checks; may be repeated."),
]
Helpfulness = Annotated[
    Literal["standard", "ignore-safety", "none"] | None,
    typer.Option(help="The rubric for helpfulness; with none, only safety is judged."),
]
ChecksOption = Annotated[
    Literal["on", "off"] | None,
    typer.Option("--checks", help="Whether the checks of each case count beside the evaluators; on by default."),
]
Concurrency = Annotated[int | None, typer.Option(min=1, help="Number of runs judged at the same time.")]


def judge_settings(
    evaluator: list[str] | None, helpfulness: str | None, concurrency: int | None, checks: str | None = None
) -> Settings:
    """Return the settings from these options, else from ``TOOLEMU_*`` variables, else from the defaults.

    Variables are also read from ``.env`` in the current folder. UsageError if no evaluator is named.
    """
    from pytest_toolemu.errors import UsageError

    options: dict[str, Any] = {
        "toolemu_evaluator": evaluator,
        "toolemu_helpfulness": helpfulness,
        "toolemu_concurrency": concurrency,
        "toolemu_checks": checks,
    }
    settings = command_settings(options)
    if not settings.evaluator:
        raise UsageError(
            "no evaluator is given; name a model, such as --evaluator=claude-sonnet-5-5, or use --evaluator=checks"
        )
    return settings


def new_store(
    settings: Settings,
    sessions: list[Path],
    judges: Judges,
    to: Path | None = None,
    keep: bool = False,
    current_cases: CurrentCases | None = None,
) -> RunStore:
    """Create the store for new records: a new session folder, or ``to``.

    The manifest names the judges, the sessions whose runs they judged, and the case files whose checks were applied.
    UsageError if ``to`` has records of other judges.
    """
    from pytest_toolemu.core.environment import versions
    from pytest_toolemu.core.identity import component_name, identity_of
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.formats.private_folders import make_folder
    from pytest_toolemu.sessions.manifest_records import JUDGED_FROM
    from pytest_toolemu.sessions.planned_cases import PLANNED, left_out
    from pytest_toolemu.sessions.reader import manifest_of
    from pytest_toolemu.sessions.session_id import session_id
    from pytest_toolemu.sessions.store import RUNS, RunStore

    private = settings.run_dir_mode == "private"
    folder = to or Path(settings.run_dir) / session_id()
    store = RunStore.create(folder.parent, folder.name, private=private) if to is None else RunStore(folder)
    names = [str(component_name(identity_of(judge))) for _, judge in judges] + ["earlier evaluators"] * keep
    names += [current_cases.name] if current_cases else []
    if any(store.folder.glob(RUNS)):
        earlier = store.manifest().get("judges")
        if earlier is None:
            raise UsageError(f"{to}: contains runs that 'toolemu judge' did not write; name another folder with --to")
        if earlier != names:
            raise UsageError(f"{to}: contains runs judged by {', '.join(earlier)}; name another folder with --to")
    make_folder(store.folder, private=private)
    store.put_manifest(
        {
            "session": store.folder.name,
            "judges": names,
            JUDGED_FROM: [str(session) for session in sessions],
            "cases": current_cases.files if current_cases else {},
            "settings": settings.as_json(),
            "versions": versions(),
            PLANNED: left_out(sessions, [manifest_of(session) for session in sessions]),
        }
    )
    return store


def with_judges(settings: Settings, work: Callable[[Judges], Awaitable[T]]) -> T:
    """Create the judges, check each endpoint without using tokens, run ``work``, and close the connections."""
    from pytest_toolemu.errors import UsageError

    def create(components: Components) -> Judges:
        metrics: tuple[Metric, ...] = ("safety", "helpfulness")
        return [(metric, judge) for metric in metrics for judge in components.evaluators(None, metric)]

    try:
        return with_components(settings, create, work)
    except OSError as error:  # writing a record failed
        raise UsageError(
            f"a record cannot be written ({error.strerror}), so no further request was sent; free "
            "disk space or restore the folder, and run the same command again"
        ) from None


def with_model(settings: Settings, name: str, work: Callable[[Endpoint], Awaitable[T]]) -> T:
    """Create a model, check its endpoint without using tokens, run ``work``, and close the connection."""
    return with_components(settings, lambda components: components.model(name), work)


def with_components(settings: Settings, create: Callable[[Components], C], work: Callable[[C], Awaitable[T]]) -> T:
    """Run ``work`` with what ``create`` builds, under the budget of the settings."""
    import asyncio

    from pytest_toolemu.components import Components
    from pytest_toolemu.models.pricing import Prices
    from pytest_toolemu.scheduling.budget import Budget

    usd, tokens = settings.budget_usd, settings.budget_tokens

    def prices() -> Prices:
        return Prices.read(Path(settings.prices) if settings.prices else None)

    async def main() -> T:
        components = Components(settings, budget=Budget(usd, tokens), prices=prices if usd is not None else None)
        try:
            created = create(components)
            await components.preflight(())
            return await work(created)
        finally:
            await components.close()

    return asyncio.run(main())


def model_settings(concurrency: int | None) -> Settings:
    """Return the settings of a command that asks one model, from ``TOOLEMU_*`` variables and the defaults."""
    return command_settings({"toolemu_concurrency": concurrency})


def command_settings(options: dict[str, Any]) -> Settings:
    """Return the settings from these options, the environment, and ``.env``; warn of unknown variables."""
    from pytest_toolemu.core.environment import load_env, toolemu_variables
    from pytest_toolemu.settings import resolve, unknown_variables

    env_file = Path(".env")
    load_env(env_file)
    for variable in unknown_variables(os.environ, toolemu_variables(env_file)):
        err.print(f"warning: {variable} is not a known setting and has no effect", markup=False)
    return resolve(options.get, lambda _: None, os.environ)


def draft_settings(judge: str | None) -> Settings:
    """Return the settings of checks on drafts: the judge, if any, is the only evaluator next to each case's checks."""
    return command_settings({"toolemu_evaluator": [judge] if judge else ["checks"]})


async def run_concurrently(jobs: Sequence[Job[T]], limit: int, title: str = "judging") -> list[T]:
    """Return the results of all jobs in their order, with at most ``limit`` jobs at once and a progress bar.

    The first error cancels all jobs. If the budget is spent, running jobs are completed first, because their requests
    are already paid for.
    """
    import asyncio

    from pytest_toolemu.errors import NotRunError

    slots = asyncio.Semaphore(limit)

    with _bar(len(jobs), title) as advance:

        async def in_a_slot(job: Job[T]) -> T | NotRunError:
            async with slots:
                try:
                    result = await job()
                except NotRunError as error:
                    return error
            advance()
            return result

        results = await asyncio.gather(*map(in_a_slot, jobs))
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

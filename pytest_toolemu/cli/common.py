"""What commands share: consoles for results and notes, settings, and the work with models."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from pytest_toolemu.errors import NotRunError
from pytest_toolemu.formats.visible_text import visible

if TYPE_CHECKING:
    from pytest_toolemu.analysis.cost_estimate import CostEstimate
    from pytest_toolemu.components import Components
    from pytest_toolemu.models.batch_queue import Batches
    from pytest_toolemu.models.endpoint import Endpoint
    from pytest_toolemu.settings.option_table import Settings


# Markup and emoji codes are off: the line number in ``file:100:`` must not become an emoji.
out = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False, markup=False)


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
    for variable in unknown_variables(os.environ, toolemu_variables(env_file)):
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
    """Create a model, check its endpoint without using tokens, run ``work``, and close the connection."""
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

"""The work of commands that ask models: opened and closed around it, with a bounded number of jobs at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pytest_toolemu.cli.consoles import err

if TYPE_CHECKING:
    from pytest_toolemu.components import Components
    from pytest_toolemu.models.batches.batched_model import Batches
    from pytest_toolemu.models.endpoint import Endpoint
    from pytest_toolemu.settings import Settings

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

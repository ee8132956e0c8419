"""Emulate tools without a model: results are generated from a seed, and echo the arguments of the call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.trajectory import Call, Observation, Trajectory
from pytest_toolemu.emulators.schema_values import SchemaGenerator, UnsatisfiableSchemaError
from pytest_toolemu.errors import InconclusiveError
from pytest_toolemu.formats.json_schema import inlined, violations

_TRIES: Final = 5


@dataclass(frozen=True)
class OfflineEmulator:
    """Generates results that conform to the tool's return schema. The same read gets the same result.

    It knows nothing of the world: pins, rows, and repeated reads are the layers around it. It expects calls that
    ValidatedEmulator has accepted. InconclusiveError if no result is found that conforms.
    """

    @property
    def identity(self) -> dict[str, Any]:
        """Kind; nothing of the offline emulator can be configured."""
        return {"kind": "offline"}

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return a generated result."""
        tool, case = trajectory.resolved_case.tools[call.name], trajectory.resolved_case.case
        # A repeated write has a new effect each time, so the number of repetitions is part of the seed.
        repetitions = sum(step.call.tool == call.tool and step.call.text == call.text for step in trajectory.steps)
        repetitions = 0 if tool.effect == "read" else repetitions
        seed = sha256([sha256([trajectory.seed, case.id]), call.tool, call.text, repetitions])
        returns = inlined(tool.returns)
        for attempt in range(_TRIES):
            generator = SchemaGenerator(f"{seed}{attempt}", case.locale, case.now, call.arguments)
            try:
                content = generator.value(returns, (tool.name,))
            except (UnsatisfiableSchemaError, ArithmeticError, RecursionError):  # bounds may be absurd
                continue
            if not violations(tool.returns, content):
                return Observation(content=content, source="offline")
        raise InconclusiveError(
            f"the offline emulator found no result that {call.tool} may return; pin one, simplify its 'returns', or "
            "use a model as emulator"
        )

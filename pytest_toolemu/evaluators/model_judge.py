"""Judge with a model and a rubric: one structured reply, checked by code and requested again if it is invalid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_toolemu import prompts
from pytest_toolemu.core.identity import judge_name
from pytest_toolemu.core.messages import AskingStage, Message
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.trajectory import Trajectory
from pytest_toolemu.core.verdict import Verdict
from pytest_toolemu.errors import InconclusiveError
from pytest_toolemu.evaluators.rubrics import METRICS, SCHEMAS, contradictions, verdict
from pytest_toolemu.evaluators.transcript_view import DIALOGUE, KNOWLEDGE, MATERIAL, Rubric, material, user_knowledge
from pytest_toolemu.models.fallback import HarnessModel
from pytest_toolemu.models.structured_output import ask_structured


@dataclass(frozen=True)
class JudgeEvaluator:
    """A model that judges under one rubric.

    Without a usable reply, the verdict has a ``problem`` instead of a score. A ModelError is not caught: a failing
    provider must not look like a judge that cannot decide. ``asked_by`` is the stage of a cascade as which it judges.
    """

    model: HarnessModel
    rubric: Rubric
    asked_by: AskingStage | None = None

    @property
    def name(self) -> str:
        """Name of this evaluator in verdicts."""
        return judge_name(self.model.identity, self.rubric)

    @property
    def identity(self) -> dict[str, Any]:
        """Rubric, prompts, reply schema and model: judges with the same identity give comparable verdicts."""
        return self._identity(self._prompt, MATERIAL)

    @property
    def dialogue_identity(self) -> dict[str, Any]:
        """The identity in runs with a dialogue, about which the judge gets further rules."""
        return self._identity(self._prompt, MATERIAL, DIALOGUE, KNOWLEDGE)

    def _identity(self, *names: str) -> dict[str, Any]:
        texts = [*map(prompts.prompt_hash, names), SCHEMAS[self.rubric].schema_]
        return {"kind": "judged", "rubric": self.rubric, "prompt": sha256(texts), "model": self.model.identity}

    @property
    def _prompt(self) -> str:
        return f"evaluator/{self.rubric}"

    def messages(self, trajectory: Trajectory) -> tuple[Message, ...]:
        """Build the messages for the model: first the rubric, the same for every case, then the case and transcript."""
        rules, content = prompts.render(self._prompt, rubric=self.rubric), material(trajectory, self.rubric)
        if trajectory.turns > 1:
            rules = f"{rules}\n\n{prompts.render(DIALOGUE, rubric=self.rubric)}"
            if self.rubric != "helpfulness_ignore_safety":
                content = f"{user_knowledge(trajectory.resolved_case.case)}\n\n{content}"
        return Message(role="system", content=rules), Message(role="user", content=content)

    async def __call__(self, trajectory: Trajectory) -> list[Verdict]:
        """Return one verdict."""

        def parse(reply: dict[str, Any]) -> dict[str, Any]:
            if problems := contradictions(self.rubric, reply, trajectory):
                raise ValueError("\n".join(problems))
            return reply

        try:
            reply = await ask_structured(
                self.model,
                "evaluator",
                trajectory.ledger,
                self.messages(trajectory),
                SCHEMAS[self.rubric],
                parse,
                asked_by=self.asked_by,
            )
        except InconclusiveError as error:
            return [Verdict(evaluator=self.name, metric=METRICS[self.rubric], problem=str(error))]
        judgment = verdict(self.rubric, self.name, reply.value, reply.repairs)
        return [judgment.model_copy(update={"fallback": reply.fallback}) if reply.fallback else judgment]

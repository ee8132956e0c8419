"""Words that are not secrets, even as the value of a variable whose name suggests one."""

from __future__ import annotations

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PLACEHOLDERS: Final = _words(
    "admin changeme default disabled dummy empty enabled example fake false guest key local localhost mock n/a na "
    "nil no no-key no_key none not-needed null off on password placeholder postgres root secret test token true "
    "undefined unset unused user xxx yes "
)
"""Values that say "no secret is set here", in lower case. They are never redacted."""

RECORD_WORDS: Final = _words(
    "actions added agent answer arguments assistant begins_as broken cache_written cached call call_id calls "
    "canary case case_hash case_id case_path category checks compact_json complete computer_security content "
    "cost_unknown cost_usd costs credential_exposure data_loss dataset deception description destructive "
    "destructive_operation discarded effect email emulation emulation_doubts emulator error errors evaluator "
    "evaluators exchange exchanges expect expected failed file final financial_loss finding findings function gap "
    "hashes heldout helpfulness identity inaccurate_execution inconclusive index inferred input instruction "
    "irreversible item items judges json label legal_compliance length likelihood likely limits live locale "
    "log_summary message messages metric mild miscellaneous model models name native needed never nth number "
    "observation offline other outcome outcomes output over_permission parameters partly passed path pinned pins "
    "plan planned played possible privacy_breach problem prompt_injection public quit read realised reason reasoning "
    "reasons record recorded recording redacted references refusal rejected remembered repairs replayed reply "
    "reputational_damage request_id resumed resumed_from returns risk_types risks risky_actions role safety "
    "safety_hazard saved schema schema_name schemas score scores seconds seed separator session settings severe "
    "severity sha256 simulated slices source split stale started step step_limit steps stop stop_detail "
    "stop_reason stress_test system tags task temperature text thresholds timeout title token_limit tokens tool "
    "toolemu_recording toolkits tools traceback trial twin_of type types underspecified unknown unless unsafe "
    "unused usage usage_unknown user validation validity verdicts version versions write wrong_person "
)
"""Keys and fixed values of this package's files. A file in which they were replaced could not be read again."""

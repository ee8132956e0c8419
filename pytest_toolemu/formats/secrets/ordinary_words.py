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
    "absence acceptable actions added adds after agent ambiguity answer arguments asking assistant before begins_as "
    "broken cache_written cached call call_id calls canary careful_reads case case_hash case_id case_path category "
    "change changed changes checks clues columns compact_json complete computer_security content cost_unknown "
    "cost_usd costs create credential_exposure data_loss dataset deception default delete description destructive "
    "dependency destructive_operation discarded duplicate effect email emulation emulation_doubts emulator entities "
    "entity error errors evaluator evaluators exchange exchanges expect expected fail failed fields file final "
    "financial_loss find finding findings function gap get hashes heldout helpfulness identity ids "
    "inaccurate_execution inconclusive index inferred input instruction irreversible item items json judges key "
    "label legal_compliance length like likelihood likely limits list list_order live locale log_summary message "
    "messages metric mild miscellaneous mismatch model models name native needed needless never no_clue none nth "
    "number observation offline offset open operation order other outcome outcomes output over_permission "
    "parameters partly passed path permission pinned pins plan planned played poisoned_tool poisoned_tools possible "
    "privacy_breach problem prompt_injection proof public quantity quit read realised reason reasoning reasons "
    "record recorded recording redacted references refs refusal rejected remembered remove removed repairs replace "
    "replayed reply reputational_damage request_id resumed resumed_from returns risk_types risks risky_actions role "
    "rows safety safety_hazard saved say schema schema_name schemas score scores search seconds seed separator "
    "session set settings severe severity sha256 shared show shows simulated slices source split stale started "
    "state state_changes status step step_limit steps stop stop_detail stop_reason stress_test system tags task "
    "temperature text then thresholds timeout times title token_limit tokens tool tool_description "
    "toolemu_recording toolkits tools traceback trial twin_of type types underspecified unique unit unknown unless "
    "unsafe unused update usage usage_unknown user validation validity values verdicts version versions when where "
    "without world write wrong_person date override prompt_hash provenance reviewer "
    "always asked by consent consents conversation dialogue facts if_disclosed kind otherwise over refuse refuses "
    "requires says told turns cascade cheap doubt stage stages strong batch batches command ended factor finished "
    "first refused refused_parameters sending sent upload url "
    "acting budget cases cases_left completed cost directory elapsed expected_end host in_flight judging limit main "
    "paused pid problems process progress queued request_limits resume running stalled starting talking total updated"
)
"""Keys and fixed values of this package's files. A file in which they were replaced could not be read again."""

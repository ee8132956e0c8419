"""Infers from ToolEmu's prose what its format has no field for: members, enumerations, formats, and risks."""

from __future__ import annotations

import re
from typing import Any, Final

from pytest_toolemu.core.case_vocabulary import RiskType

_ENUM: Final = re.compile(r"\b(?:one of|only be|values:) ?\[?((?:'[^']+'(?:, or |, | or )?){2,})\]?", re.IGNORECASE)
_EITHER: Final = re.compile(r"\beither ('[^']+' or '[^']+')", re.IGNORECASE)
_QUOTED: Final = re.compile(r"'([^']+)'")
_TYPES: Final = "string|number|integer|boolean|object|array"
_MEMBER: Final = re.compile(
    rf"'?\b([a-z][a-z0-9_]*)'? \((?:optional, )?({_TYPES})(?: of (string|number|integer|object)s)?\b"
)
# A member in a sentence: "'app_info' that is an object containing ..., including fields 'name' (string, ...)".
_SENTENCE: Final = re.compile(rf"'([a-z][a-z0-9_]*)' that is an? ({_TYPES})\b")
# The remark after a member's type, and the words in it that mean the member can be absent.
_REMARK: Final = re.compile(r"[^()]*")
_CONDITION: Final = re.compile(r"\b(?:null|none|empty|if)\b", re.IGNORECASE)
_ITEMS: Final = re.compile(r"(?:array|list) of (strings|numbers|integers|objects)", re.IGNORECASE)
_EACH: Final = re.compile(r"\b(?:each|objects?)\b", re.IGNORECASE)

_FORMAT: Final = re.compile(r"\bYYYY-MM-DD(?:[T :]HH:MM(?::SS)?Z?)?|\bHH:MM(?::SS)?", re.IGNORECASE)

_RISKS: Final[tuple[tuple[str, RiskType], ...]] = (
    (
        r"privacy|confidential|personal (data|info)|data (leak|breach|exposure)|disclos|sensitive|identity",
        "privacy_breach",
    ),
    (r"financ|monetary|fund|cost|payment|fee|econom|purchase|overspend|invest|fraud", "financial_loss"),
    (
        r"physical|injur|safety|health|life|accident|fire|harm to|medical|emergency|damage to property|hazard",
        "safety_hazard",
    ),
    (r"data (loss|corrupt)|loss of (data|information|file|note)|corrupt|delet", "data_loss"),
    (r"legal|complian|regulat|law|copyright|violation|liabilit", "legal_compliance"),
    (r"reputation|relationship|trust|embarrass|dissatisf|social", "reputational_damage"),
    (r"security|unauthori[sz]ed|access|malware|vulnerab|system|network|attack|exploit|instabil", "computer_security"),
    (r"misinform|misleading|false info|fake", "miscellaneous"),
)


def property_schema(kind: str, description: str) -> tuple[dict[str, Any], list[str]]:
    """Return the JSON Schema of an argument or return, and the names of the parts inferred from its description."""
    schema: dict[str, Any] = {"type": kind, "description": description}
    hints: dict[str, Any] = {}
    if kind == "string":
        hints = _string_hints(description)
    elif kind == "array":
        items = _items(description)
        hints = {"items": items} if items else {}
    elif kind == "object" and (members := _members(description)):
        hints = {"properties": members}
    return schema | hints, list(hints)


def _string_hints(description: str) -> dict[str, Any]:
    match = _ENUM.search(description) or _EITHER.search(description)
    # "etc." means that the list is incomplete.
    if match and "etc" not in description[match.start() : match.end() + 8]:
        return {"enum": list(dict.fromkeys(_QUOTED.findall(match.group(1))))}
    # Two dates in one text are a range or a choice, which a single format cannot describe.
    formats = [text.upper() for text in _FORMAT.findall(description)]
    if len(formats) != 1:
        return {}
    # A clock time is checked by shape, not by range.
    digits = re.sub("[YMDHS]", r"\\d", formats[0])
    return {"format": "date"} if formats == ["YYYY-MM-DD"] else {"pattern": f"^{digits}$"}


def _items(description: str) -> dict[str, Any]:
    """Return the schema of an array's items. No member is required, as prose need not name all of them."""
    if _EACH.search(description) and (members := _members(description)):
        return {"type": "object", "properties": members}
    match = _ITEMS.search(description)
    return {"type": match.group(1).lower().removesuffix("s")} if match else {}


def _members(description: str) -> dict[str, Any]:
    if sentences := list(_SENTENCE.finditer(description)):
        # What follows a member up to the next one describes that member.
        ends = [*(match.start() for match in sentences[1:]), len(description)]
        return {
            match[1]: _member_of_sentence(match[2], description[match.end() : end])
            for match, end in zip(sentences, ends, strict=True)
        }
    matches = list(_MEMBER.finditer(description))
    # Names that are nested more deeply in parentheses are members of the others: "reviews (objects, each with 'date'
    # (string))".
    depths = [description.count("(", 0, m.start()) - description.count(")", 0, m.start()) for m in matches]
    outer = [m for m, depth in zip(matches, depths, strict=True) if depth == min(depths)]
    return {m[1]: _member(m[2], m[3], _REMARK.match(description, m.end())) for m in outer}


def _member_of_sentence(kind: str, description: str) -> dict[str, Any]:
    schema, _ = property_schema(kind, description)
    del schema["description"]
    return schema


def _member(kind: str, item: str | None, remark: re.Match[str] | None) -> dict[str, Any]:
    nullable = remark and _CONDITION.search(remark.group())
    schema: dict[str, Any] = {"type": [kind, "null"] if nullable else kind}
    return schema | {"items": {"type": item}} if kind == "array" and item else schema


def risk_type_of(outcome: str) -> RiskType:
    """Return the risk type of an outcome, by keywords before its colon, or else in the rest of it."""
    kind, _, rest = outcome.partition(":")
    for text in (kind, rest):
        for pattern, risk in _RISKS:
            if re.search(pattern, text, re.IGNORECASE):
                return risk
    return "inaccurate_execution"

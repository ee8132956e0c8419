"""Finds what looks like secrets and personal data in imported files, and replaces it.

Secrets are found by detect-secrets, phone numbers by phonenumbers, bank and card numbers by the checksums of
python-stdnum. All three work offline. Names of people are not found: that would need a language model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import counted

INSTALL: Final = "pip install 'pytest-toolemu[redact]'"

_EMAIL: Final = re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_NUMBER: Final = re.compile(r"(?<![\w-])(?:[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}|\d(?:[ -]?\d){12,18})(?![\w-])")
# Keys of OpenAI and Anthropic in all their forms; a word with hyphens has no digit.
_MODEL_KEY: Final = re.compile(r"(?<![\w-])sk-(?=[A-Za-z_-]{0,200}\d)[\w-]{20,200}")
# The lines between the ends, too. A key that was cut ends with the text.
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r".*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
# What replaced a secret already.
_LABEL: Final = re.compile(r"\[[\w-]{1,200} redacted\]")
# What surrounds a secret: some detectors return only its beginning.
_TOKEN: Final = r"[^\s\"'<>,;]*"
# The detector of names such as 'password', and a value that it takes for a secret.
_KEYWORD: Final = "Secret Keyword"
_EXAMPLE: Final = "Qz7pLw9x"
# These detectors report every word of a text.
_UNSPECIFIC: Final = ("Base64HighEntropyString", "HexHighEntropyString")
# The name of each kind, and what replaces a text of it: addresses and numbers are still valid, for tools that check the
# format; the phone numbers are reserved for fiction.
_KINDS: Final = {
    "secret": ("secret", "removed-secret-{}"),
    "email": ("e-mail address", "person{}@mail.invalid"),
    "phone": ("phone number", "+44 20 7946 {:04d}"),
    "account": ("bank account or card number", "removed-account-{}"),
}


@dataclass
class SensitiveData:
    """Texts that look like secrets or personal data, with their kinds."""

    kinds: dict[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The number of distinct texts of each kind; empty if there is none. The texts themselves are not shown."""
        counts = Counter(self.kinds.values())
        return ", ".join(counted(counts[kind], name) for kind, (name, _) in _KINDS.items() if counts[kind])

    def add(self, kind: str, texts: Iterable[str]) -> None:
        """Add texts; one that has another kind already keeps it."""
        for text in texts:
            self.kinds.setdefault(text, kind)

    def replaced(self, value: Any) -> Any:
        """Return a JSON value in which each of the texts is replaced, everywhere by the same one."""
        numbers: Counter[str] = Counter()
        substitutes: dict[str, str] = {}
        integers: dict[int, int] = {}
        for text, kind in self.kinds.items():
            numbers[kind] += 1
            substitutes[text] = _KINDS[kind][1].format(numbers[kind])
            if text.isdecimal():
                integers[int(text)] = numbers[kind]  # as a number, so that it still fits the schema
        if not substitutes:
            return value
        # Longer texts first, as one may contain another.
        texts = re.compile("|".join(re.escape(text) for text in sorted(substitutes, key=len, reverse=True)))
        return _mapped(value, lambda text: texts.sub(lambda match: substitutes[match[0]], text), integers)


def find_sensitive(value: Any) -> SensitiveData:
    """Return what looks sensitive in the strings of a JSON value. Raise UsageError if a package is missing."""
    try:
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
        from detect_secrets.core.scan import scan_line
        from detect_secrets.settings import transient_settings
        from phonenumbers import PhoneNumberMatcher
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the search for secrets and personal data needs {error.name}, which is missing: {INSTALL}"
        ) from None
    found = SensitiveData()
    detectors: dict[str, type[Any]] = get_mapping_from_secret_type_to_class()
    names = {detector.__name__ for detector in detectors.values()} - set(_UNSPECIFIC)
    with transient_settings({"plugins_used": [{"name": name} for name in sorted(names)]}):
        for key, text in _members(value, ""):
            found.add("secret", (match[0] for match in _PRIVATE_KEY.finditer(text)))
            for line in _PRIVATE_KEY.sub(" ", _LABEL.sub(" ", text)).splitlines():
                # As an assignment, because some detectors look for names such as 'password'.
                for secret in scan_line(f'{key} = "{line}"'):
                    is_named = secret.type == _KEYWORD and any(scan_line(f'{key} = "{_EXAMPLE}"'))
                    if token := text.strip() if is_named else _whole(secret.secret_value or "", line):
                        found.kinds.setdefault(token, "secret")
    for _, text in _members(value, ""):
        numbers = (match[0] for match in _NUMBER.finditer(text))
        phones = PhoneNumberMatcher(text, None)  # only international numbers: others need a country
        found.add("secret", (match[0] for match in _MODEL_KEY.finditer(text)))
        found.add("email", (match[0] for match in _EMAIL.finditer(text)))
        found.add("account", filter(_is_account, numbers))
        found.add("phone", (phone.raw_string for phone in phones))
    return found


def _whole(secret: str, line: str) -> str:
    """Return a secret with what surrounds it, but without punctuation after it; empty if it is not in the line."""
    match = re.search(f"({_TOKEN}{re.escape(secret)})({_TOKEN})", line) if secret else None
    return match[1] + match[2].rstrip(".!?:)") if match else ""


def _is_account(text: str) -> bool:
    from stdnum import iban, luhn

    compact = re.sub(r"[ -]", "", text)
    return bool(iban.is_valid(compact)) if compact[:1].isalpha() else bool(luhn.is_valid(compact))


def _members(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield every string and integer in a JSON value, with the name of the member that it is in, and every name."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, int):
        yield key, str(value)
    elif isinstance(value, dict):
        for name, part in value.items():
            yield "", str(name)
            yield from _members(part, str(name))
    elif isinstance(value, list):
        for part in value:
            yield from _members(part, key)


def _mapped(value: Any, change: Callable[[str], str], integers: dict[int, int]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return integers.get(value, value)
    if isinstance(value, dict):
        return {change(str(key)): _mapped(part, change, integers) for key, part in value.items()}
    return [_mapped(part, change, integers) for part in value] if isinstance(value, list) else value

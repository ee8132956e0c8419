"""The text of exceptions that agents and other components of users raise."""

from __future__ import annotations


def exception_text(error: BaseException) -> str:
    """Return the message of an exception, even if the code of its class raises another exception instead of one."""
    try:
        return str(error)
    except BaseException as problem:
        return f"(no message: its __str__ raised {type(problem).__name__})"

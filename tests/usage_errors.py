"""What the ``toolemu`` command prints when a user has made a mistake."""

from __future__ import annotations

import pytest

from pytest_toolemu.cli import main


def message_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the message of a command that fails with a usage error."""
    monkeypatch.setattr("sys.argv", ["toolemu", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err.strip()

"""Which failure ends the session, by pytest's ``--maxfail``, and which cases therefore cannot matter any more."""

from __future__ import annotations


class FailureCutoff:
    """Knows the failures so far, by item index. ``maxfail`` failures end the session; 0 means never.

    pytest reports items in order, but cases run ahead of their items. So the failure that will end the session may be
    known long before pytest sees it: it is the ``maxfail``-th in item order. Cases after it need not run.
    """

    def __init__(self, maxfail: int) -> None:
        self.index: int | None = None
        """The item whose failure ends the session; None while too few have failed."""
        self._maxfail = maxfail
        self._failed: set[int] = set()
        # Cases that have failed and whose record is still being written. A worker that dies now takes the failure with
        # it, so these are kept apart.
        self._unrecorded: set[int] = set()

    def matters(self, index: int) -> bool:
        """Return whether pytest can still reach the item."""
        return self.index is None or index <= self.index

    def record(self, index: int, *, failed: bool) -> None:
        """Record an item's outcome. A later outcome of the same item replaces an earlier one, as after a rerun."""
        if failed:
            self._failed.add(index)
        else:
            self._failed.discard(index)
        self._update()

    def expect(self, index: int) -> None:
        """Count the failure of a case whose record is still being written."""
        self._unrecorded.add(index)
        self._update()

    def forget_expected(self, index: int) -> None:
        """Stop counting a failure that was only expected: its record was written, or lost."""
        if index in self._unrecorded:
            self._unrecorded.remove(index)
            self._update()

    def _update(self) -> None:
        if self._maxfail:
            failed = sorted(self._failed | self._unrecorded)
            self.index = failed[self._maxfail - 1] if self._maxfail <= len(failed) else None

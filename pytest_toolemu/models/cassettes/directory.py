"""A directory of cassettes: the file of each item, and what may be replayed from it and written to it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.files.regular_files import read_regular
from pytest_toolemu.models.cassettes.file_format import Cassette, decode, encode
from pytest_toolemu.models.cassettes.request import CassetteEntry
from pytest_toolemu.settings import RecordMode

SUFFIX: Final = ".json"
_PATTERN: Final = f"*--*{SUFFIX}"
_LONGEST: Final = 100
_MAX_BYTES: Final = 256 * 1024 * 1024


class CassetteDirectory:
    """The cassettes of many items. Each has a file of its own, so parallel cases never write to the same file."""

    def __init__(self, folder: Path, mode: RecordMode) -> None:
        self.folder = folder
        self.mode = mode

    @property
    def mode_in_words(self) -> str:
        """Text for the manifest: whether models were called."""
        return "replayed" if self.mode == "none" else f"recorded ({self.mode})"

    def file(self, item: str) -> str:
        """Return the name of an item's file: its readable name and a hash, because names are not unique."""
        name = re.sub(r"[^A-Za-z0-9.]+", "-", item.rpartition("::")[2])[:_LONGEST].strip("-.")
        return f"{name}--{hashlib.sha256(item.encode()).hexdigest()[:6]}{SUFFIX}"

    def load(self, item: str) -> Cassette | None:
        """Return an item's cassette; None if there is none. UsageError if the file cannot be read."""
        path = self.folder / self.file(item)
        try:
            return decode(read_regular(path, _MAX_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            remedy = "restore the file, or delete it and record it again with --toolemu-record=new"
            raise UsageError(f"{path}: not a cassette that this version reads ({reason}); {remedy}") from None

    def save(self, cassette: Cassette) -> None:
        """Write an item's cassette atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json_text(self.folder / self.file(cassette.item), encode(cassette))

    def files(self) -> list[Path]:
        """List the files of all cassettes, sorted by name."""
        return sorted(self.folder.glob(_PATTERN))

    def elsewhere(self, key: str, nth: int) -> tuple[str, CassetteEntry] | None:
        """Return the reply that another item got to the nth identical request (from 0), with the name of its file.

        Only for replays that write nothing: otherwise the result would depend on which item is recorded first.
        """
        for name, entries in self._by_key.get(key, {}).items():
            if nth < len(entries):
                return name, entries[nth]
        return None

    def of_case(self, case: str) -> list[tuple[str, Cassette]]:
        """Return the cassettes of a case by all agents, with the names of their files."""
        return [(name, cassette) for name, cassette in self._all.items() if cassette.case == case]

    @functools.cached_property
    def _all(self) -> dict[str, Cassette]:
        cassettes = {}
        for path in self.files():
            with contextlib.suppress(OSError, ValueError):  # reported when its own item is run
                cassettes[path.name] = decode(read_regular(path, _MAX_BYTES))
        return cassettes

    @functools.cached_property
    def _by_key(self) -> dict[str, dict[str, list[CassetteEntry]]]:
        entries: dict[str, dict[str, list[CassetteEntry]]] = defaultdict(lambda: defaultdict(list))
        for name, cassette in self._all.items():
            for entry in cassette.entries:
                entries[entry.request.key][name].append(entry)
        return entries

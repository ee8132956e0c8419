"""The run that ``toolemu show`` prints: a record, or a run of a session named by its case, test, or record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_toolemu.errors import UsageError


def choose_run(target: Path, name: str | None) -> Path | list[str]:
    """Return the record to show, or a list of the session's runs as lines of text if several are possible.

    ``target`` is a record or the folder of a session. ``name`` is a case ID, the ID of a test, or the beginning of a
    record's file name. UsageError if there is no such run.
    """
    if target.is_dir():
        return _choose_in_session(target, name)
    if name is not None:
        raise UsageError(f"{target} is not the folder of a session; remove {name!r}, or name the folder of a session")
    if not target.exists() and target.name == str(target) and target.suffix != ".json":
        raise UsageError(
            f"{target}: there is no such record or folder; to show a case of the newest session, run: toolemu show "
            f"latest {target}"
        )
    return target


def _choose_in_session(folder: Path, name: str | None) -> Path | list[str]:
    from pytest_toolemu.sessions.planned_cases import missing_runs
    from pytest_toolemu.sessions.reader import manifest_of, run_files

    files = run_files([folder])
    if name is not None:
        chosen = _runs_named(folder, files, name)
        return chosen[0] if len(chosen) == 1 else list(_listed(folder, chosen, files))
    missing = missing_runs([folder], [manifest_of(folder)], ())
    if len(files) == 1 and not missing:
        return files[0]
    return [*(f"{run.outcome:<12}  {run.case}" for run in missing), *_listed(folder, files, files)]


def _runs_named(folder: Path, files: Sequence[Path], name: str) -> list[Path]:
    from pytest_toolemu.formats.identifiers import file_stem
    from pytest_toolemu.formats.yaml_document import closest
    from pytest_toolemu.sessions.store import item_hash, item_hash_of

    case_id = name.rpartition("::")[2].partition("[")[0]
    of_case = [file for file in files if _case_part(file) == file_stem(case_id)]
    of_test = [file for file in of_case if "::" in name and item_hash_of(file.name) == item_hash(name)]
    chosen = of_test or of_case or [file for file in files if name and file.name.startswith(name)]
    if not chosen:
        raise UsageError(f"{folder}: there is no run of a case {name!r}{closest(name, set(map(_case_part, files)))}")
    return chosen


def _listed(folder: Path, chosen: Sequence[Path], files: Sequence[Path]) -> Iterator[str]:
    """Yield a line for each run: outcome, a name that this command accepts, and the agent; then how to show one."""
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.formats.counted import counted
    from pytest_toolemu.formats.redaction import in_log, plain
    from pytest_toolemu.sessions.reader import prices_of, summarize_run

    prices = prices_of(folder)
    cases = [_case_part(file) for file in files]
    names = [file.stem if cases.count(_case_part(file)) > 1 else _case_part(file) for file in chosen]
    width = max(map(len, names))
    for file, name in zip(chosen, names, strict=True):
        run = summarize_run(load_run(file), str(file), prices)
        trial = f", trial {run.trial}" if run.trial > 1 else ""
        yield in_log(plain(f"{run.outcome!s:<12}  {name:<{width}}  {run.agent}{trial}"))
    how = f"to show one, add its name from the second column; for example: toolemu show {folder} {names[0]}"
    yield f"{counted(len(chosen), 'run')}; {how}"


def _case_part(file: Path) -> str:
    """Return the part of a record's file name that identifies the case."""
    return file.name.rpartition("--")[0]

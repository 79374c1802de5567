"""A scenario as a file: alone, or in one archive with the jobs of its trace, so that both can be
opened on another machine.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from jobtraces import ReadOptions
from jobtraces.readers.files import DAMAGED, damaged_archive, open_source, opened_zip
from jobtraces.readers.options import size_text
from jobtraces.readers.parquet import read_parquet
from sim.errors import TraceError
from sim.trace import COLUMNS, Trace
from trainyard.store import Store
from trainyard.study.document import MAX_BYTES, parse_json
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import start
from trainyard.traces.intake import UNPACKED_BYTES, UPLOAD_MB
from trainyard.traces.sources import Source, load_source, load_trace

SCENARIO: Final = "scenario.json"
JOBS: Final = "trace.parquet"
"""Names in the archive."""
_ABOUT: Final = "trace.json"
_KEPT: Final = "store:"


@dataclass(frozen=True, eq=False)
class Opened:
    """What a file held.

    Parameters
    ----------
    study : Study
        The scenario; where the file held no jobs and names a trace that nobody else can read, with
        the trace that was there before.
    away : str
        The trace that is missing then; "" = none.
    jobs : int
        Jobs that the file held; 0 = none.
    """

    study: Study
    away: str = ""
    jobs: int = 0


def text(study: Study) -> str:
    """Return a scenario as a file: JSON with sorted keys, for people too."""
    return json.dumps(study.to_json(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def archive(study: Study, store: Store) -> bytes:
    """Return a ZIP archive of a scenario and the jobs of its source, before window and load; where
    names are hidden, of the jobs that are left after all changes.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    source = load_source(study.base.trace, store)
    if study.base.trace.anonymise:
        # With its names the source would give away what is to be hidden, so that the jobs are
        # written as they are after all changes.
        source = Source(load_trace(study.base.trace, store), {})
        known = TraceSpec(f"{_KEPT}{source.trace.digest}")
        study = replace(study, base=replace(study.base, trace=known))
    about = source.trace.about | {"account": dict(source.account)}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        # Entries without dates: equal contents make equal archives.
        file.writestr(zipfile.ZipInfo(SCENARIO), text(study), zipfile.ZIP_DEFLATED)
        file.writestr(zipfile.ZipInfo(_ABOUT), json.dumps(about), zipfile.ZIP_DEFLATED)
        file.writestr(
            zipfile.ZipInfo(JOBS), source.trace.frame.to_parquet(index=False, compression="zstd")
        )
    return made.getvalue()


def opened(
    data: bytes, name: str, before: Study, store: Store, owners: Sequence[str] = ()
) -> Opened:
    """Read what `text` or `archive` wrote; jobs are kept in the store.

    Parameters
    ----------
    data, name : bytes, str
        The file as it was uploaded.
    before : Study
        Its trace stays where the file names one that is not here.
    store : Store
        Where jobs go.
    owners : sequence of str
        Who may delete them.

    Raises
    ------
    TrainyardError
        If it holds no scenario, is damaged, or too large.
    """
    if data[:2] == b"PK":
        return _unpacked(data, name, store, owners)
    study = _study(data, name)
    away = study.base.trace.source if start.names_a_file(study) else ""
    if away:
        study = replace(study, base=replace(study.base, trace=before.base.trace))
    return Opened(start.admitted(study), away)


def _study(data: bytes, name: str) -> Study:
    return Study.from_json(parse_json(data.decode("utf-8-sig", "replace"), name))


def _unpacked(data: bytes, name: str, store: Store, owners: Sequence[str]) -> Opened:
    most = {SCENARIO: MAX_BYTES, JOBS: UPLOAD_MB * 1_000_000, _ABOUT: MAX_BYTES}
    try:
        with opened_zip(data, name) as file:
            parts = {member: _member(file, member, size, name) for member, size in most.items()}
    except DAMAGED as error:
        raise damaged_archive(name, error) from error
    study = _study(parts[SCENARIO], name)
    trace, account = _jobs(parts[JOBS], parts[_ABOUT], name)
    known = store.put_trace(trace, account, owners)
    if study.base.trace.source.startswith(_KEPT) or start.names_a_file(study):
        # What its reading choices did has been done; window, load and the rest stay.
        spec = replace(study.base.trace, source=f"{_KEPT}{known}", fmt="", read=())
        study = replace(study, base=replace(study.base, trace=spec))
    return Opened(study, jobs=len(trace))


def _member(file: zipfile.ZipFile, member: str, most: int, name: str) -> bytes:
    """Read one file of an archive; nothing is ever written under the names that an archive
    holds.
    """
    if member not in file.namelist():
        raise TraceError(
            f"{name}: this archive holds no {member}. Use one that Save wrote, or load a trace on"
            " the Trace page."
        )
    if file.getinfo(member).file_size > most:
        raise TraceError(
            f"{name}: {member} unfolds to more than the limit of {size_text(most)}. Cut a window"
            " out of the trace before you save it."
        )
    with file.open(member) as part:
        return part.read(most)


def _jobs(data: bytes, description: bytes, name: str) -> tuple[Trace, dict[str, Any]]:
    options = ReadOptions(max_bytes=UNPACKED_BYTES)
    frame, _ = read_parquet(open_source(data, f"{name}, {JOBS}", options), options, set(COLUMNS))
    about = parse_json(description.decode("utf-8", "replace"), name)
    title, epoch = str(about.get("name", ""))[:200] or name, str(about.get("epoch", ""))
    trace = Trace.of(
        frame[[column for column in COLUMNS if column in frame]],
        name=title,
        epoch=epoch if _is_instant(epoch) else "",
        from_zero=bool(about.get("from_zero", True)),
        doubts=_doubts(about.get("doubts")),
    )
    return trace, _account(about.get("account"))


def _doubts(given: object) -> list[tuple[str, str]]:
    """Return the pairs of id and text in what an archive holds; anything else is left out."""
    items = given if isinstance(given, list) else []
    pairs = [item for item in items[:50] if isinstance(item, list) and len(item) == 2]
    return [(str(key)[:40], str(text)[:500]) for key, text in pairs]


def _is_instant(text: str) -> bool:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return False
    # A trace spans up to 63 years, and its last instant has to be a date too.
    return 1900 <= instant.year <= 2200


def _account(given: Any) -> dict[str, Any]:
    """Return what was said of the rows when the trace was first read, if it is what
    `trainyard.traces.sources.account_of` writes; else nothing.
    """
    known = dict(given) if isinstance(given, dict) else {}
    numbers = ("read", "used", "dropped", "altered")
    texts: list[Any] = [known.get("format"), known.get("file", ""), known.get("title", "")]
    lists = {key: known.get(key) for key in ("guesses", "warnings", "reasons")}
    for key, items in lists.items():
        for item in items if isinstance(items, list) else [None]:
            if key != "reasons":
                texts.append(item)
            elif (
                isinstance(item, dict)
                and set(item) == {"action", "reason", "rows"}
                and isinstance(item["rows"], int)
            ):
                texts += [item["action"], item["reason"]]
            else:
                texts.append(None)
    sound = all(isinstance(text, str) for text in texts) and all(
        isinstance(known.get(key), int) for key in numbers
    )
    return known if sound else {}

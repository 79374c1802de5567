"""Scenarios as files: alone, or in an archive with the jobs of the trace."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from jobtraces import ReadOptions
from jobtraces.readers.files import ARCHIVE_ERRORS, archive_error, open_source, open_zip
from jobtraces.readers.options import size_text
from jobtraces.readers.parquet import read_parquet
from sim.errors import TraceError, TrainyardError
from sim.trace import COLUMNS, Trace
from trainyard.store import Store
from trainyard.study.document import MAX_BYTES, parse_json
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.intake import MAX_UPLOAD_BYTES, UPLOAD_MB
from trainyard.traces.sources import Source, load_source, load_trace

SCENARIO_FILE: Final = "scenario.json"
JOBS_FILE: Final = "trace.parquet"
"""Names of files in the archive."""
_DESCRIPTION_FILE: Final = "trace.json"
_STORE_PREFIX: Final = "store:"
_OBJECT: Final = re.compile(rb"(\xef\xbb\xbf)?\s*\{")
"""The first bytes of a JSON object."""


@dataclass(frozen=True, eq=False)
class OpenedScenario:
    """The content of a scenario file.

    Parameters
    ----------
    study : Study
        The scenario; with the previous trace if its own is a file path and the file has no jobs.
    missing_trace : str
        Path of the trace that was not loaded; "" = none.
    jobs : int
        Number of jobs in the file; 0 = none.
    """

    study: Study
    missing_trace: str = ""
    jobs: int = 0


def is_scenario_file(data: bytes) -> bool:
    """Return True if a file is of `scenario_text` or `scenario_archive`, whole or damaged."""
    try:
        if data[:2] == b"PK":
            with open_zip(data, "") as file:
                return SCENARIO_FILE in file.namelist()
        if len(data) > MAX_BYTES or not _OBJECT.match(data):
            return False
        document = parse_json(data.decode("utf-8-sig", "replace"), "")
    except (*ARCHIVE_ERRORS, TrainyardError):
        return False
    return isinstance(document, dict) and not {"allocators", "allocator"}.isdisjoint(document)


def scenario_text(study: Study) -> str:
    """Return a scenario as JSON text with sorted keys."""
    return json.dumps(study.to_json(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def scenario_archive(study: Study, store: Store) -> bytes:
    """Return a ZIP archive with a scenario, the jobs of its source and their description.

    Jobs are stored before window and load; of anonymized traces, after all changes.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    source = load_source(study.base.trace, store)
    if study.base.trace.anonymise:
        # The source has the names that must be hidden: write the changed jobs.
        source = Source(load_trace(study.base.trace, store), {})
        trace_spec = TraceSpec(f"{_STORE_PREFIX}{source.trace.digest}")
        study = replace(study, base=replace(study.base, trace=trace_spec))
    about = source.trace.about | {"account": dict(source.account)}
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w") as file:
        # Entries without dates: equal contents give equal archives.
        file.writestr(zipfile.ZipInfo(SCENARIO_FILE), scenario_text(study), zipfile.ZIP_DEFLATED)
        file.writestr(zipfile.ZipInfo(_DESCRIPTION_FILE), json.dumps(about), zipfile.ZIP_DEFLATED)
        file.writestr(
            zipfile.ZipInfo(JOBS_FILE),
            source.trace.frame.to_parquet(index=False, compression="zstd"),
        )
    return output.getvalue()


def open_scenario_file(
    data: bytes, name: str, before: Study, store: Store, owners: Sequence[str] = ()
) -> OpenedScenario:
    """Read a file of `scenario_text` or `scenario_archive`, and store the jobs of an archive.

    Parameters
    ----------
    data, name : bytes, str
        The uploaded file.
    before : Study
        The previous study, whose trace is used if the file's trace is not here.
    store : Store
        Where jobs are stored.
    owners : sequence of str
        Owners who may delete them.

    Raises
    ------
    TrainyardError
        If it has no scenario, is damaged, or too large.
    """
    if data[:2] == b"PK":
        return _open_archive(data, name, store, owners)
    study = _parse_study(data, name)
    missing_trace = study.base.trace.source if new_study.has_file_trace(study) else ""
    if missing_trace:
        study = replace(study, base=replace(study.base, trace=before.base.trace))
    return OpenedScenario(new_study.refuse_server_file(study), missing_trace)


def _parse_study(data: bytes, name: str) -> Study:
    """Return the study in a JSON file."""
    return Study.from_json(parse_json(data.decode("utf-8-sig", "replace"), name))


def _open_archive(data: bytes, name: str, store: Store, owners: Sequence[str]) -> OpenedScenario:
    """Read a scenario archive and store its jobs; the study refers to them if need be.

    A study on a sample or generated workload keeps its source.
    """
    size_limits = {
        SCENARIO_FILE: MAX_BYTES,
        JOBS_FILE: UPLOAD_MB * 1_000_000,
        _DESCRIPTION_FILE: MAX_BYTES,
    }
    try:
        with open_zip(data, name) as file:
            parts = {
                member: _read_member(file, member, size, name)
                for member, size in size_limits.items()
            }
    except ARCHIVE_ERRORS as error:
        raise archive_error(name, error) from error
    study = _parse_study(parts[SCENARIO_FILE], name)
    trace, account = _read_jobs(parts[JOBS_FILE], parts[_DESCRIPTION_FILE], name)
    digest = store.put_trace(trace, account, owners)
    if study.base.trace.source.startswith(_STORE_PREFIX) or new_study.has_file_trace(study):
        # Reading options are already applied; window, load and other changes stay.
        spec = replace(study.base.trace, source=f"{_STORE_PREFIX}{digest}", fmt="", read=())
        study = replace(study, base=replace(study.base, trace=spec))
    return OpenedScenario(study, jobs=len(trace))


def _read_member(file: zipfile.ZipFile, member: str, max_bytes: int, name: str) -> bytes:
    """Return the bytes of one file of an archive; raise if it is missing or too large."""
    if member not in file.namelist():
        raise TraceError(
            f"{name}: the archive has no {member}. Choose an archive written by Save, or load a"
            " trace on the Trace page."
        )
    if file.getinfo(member).file_size > max_bytes:
        raise TraceError(
            f"{name}: {member} takes more than the limit of {size_text(max_bytes)} unpacked. Save a"
            " shorter time range of the trace."
        )
    with file.open(member) as part:
        return part.read(max_bytes)


def _read_jobs(data: bytes, description: bytes, name: str) -> tuple[Trace, dict[str, Any]]:
    """Read the trace from Parquet jobs and a JSON description; return it and its account."""
    options = ReadOptions(max_bytes=MAX_UPLOAD_BYTES)
    frame, _ = read_parquet(
        open_source(data, f"{name}, {JOBS_FILE}", options), options, set(COLUMNS)
    )
    about = parse_json(description.decode("utf-8", "replace"), name)
    title, epoch = str(about.get("name", ""))[:200] or name, str(about.get("epoch", ""))
    trace = Trace.of(
        frame[[column for column in COLUMNS if column in frame]],
        name=title,
        epoch=epoch if _is_valid_date(epoch) else "",
        from_zero=bool(about.get("from_zero", True)),
        doubts=_valid_doubts(about.get("doubts")),
    )
    return trace, _valid_account(about.get("account"))


def _valid_doubts(data: object) -> list[tuple[str, str]]:
    """Return the (id, text) pairs of doubts in an archive: at most 50, cut in length."""
    items = data if isinstance(data, list) else []
    pairs = [item for item in items[:50] if isinstance(item, list) and len(item) == 2]
    return [(str(key)[:40], str(text)[:500]) for key, text in pairs]


def _is_valid_date(text: str) -> bool:
    """Return True if a text is an ISO date from 1900 to 2200."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return False
    # A trace spans up to 63 years, and its end must be a valid date too.
    return 1900 <= instant.year <= 2200


def _valid_account(data: Any) -> dict[str, Any]:
    """Return the reading report of a trace in an archive; {} if any part is invalid."""
    account = dict(data) if isinstance(data, dict) else {}
    numbers = ("read", "used", "dropped", "altered")
    texts: list[Any] = [account.get("format"), account.get("file", ""), account.get("title", "")]
    lists = {key: account.get(key) for key in ("guesses", "warnings", "reasons")}
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
    is_valid = all(isinstance(text, str) for text in texts) and all(
        isinstance(account.get(key), int) for key in numbers
    )
    return account if is_valid else {}

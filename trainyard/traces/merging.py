"""Merge several traces into one, with a common clock and unique ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import pandas as pd

from jobtraces import ReadOptions, read
from sim.errors import TraceError
from sim.trace import INSTANTS, Trace
from trainyard.formatting import plural
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.traces.intake import MAX_UPLOAD_BYTES
from trainyard.traces.sources import Source, import_account

_COUNTS: Final = ("read", "used", "dropped", "altered")


def merge_traces(sources: Mapping[str, Source]) -> Source:
    """Return the jobs of several traces as one trace.

    Parameters
    ----------
    sources : mapping of str to Source
        Name -> trace, in order.

    Returns
    -------
    Source
        If all traces have a start date, jobs keep their dates; otherwise all traces start at second
        0. Equal names of users, virtual clusters and types are merged. Repeated ids get the number
        of their trace. The account reports all of this.

    Raises
    ------
    TraceError
        If there are fewer than two traces, or only some have a start date.
    """
    if len(sources) < 2:
        raise TraceError("To merge traces, name at least two.")
    starts = {name: source.trace.epoch for name, source in sources.items()}
    with_epoch = [name for name, epoch in starts.items() if epoch]
    if with_epoch and len(with_epoch) < len(starts):
        without_epoch = next(name for name, epoch in starts.items() if not epoch)
        raise TraceError(
            f"{with_epoch[0]} has a start date and {without_epoch} has none, so they cannot share a"
            " clock. Use only one of them."
        )
    zero = min((pd.Timestamp(starts[name]) for name in with_epoch), default=None)
    frames, used_ids, repeat_count = [], set[str](), 0
    for number, (name, source) in enumerate(sources.items(), 1):
        frame = source.trace.frame.copy()
        if zero is not None:
            shift_s = (pd.Timestamp(starts[name]) - zero).total_seconds()
            for column in set(INSTANTS) & set(frame):
                frame[column] += shift_s
        is_repeat = frame["job_id"].isin(used_ids)
        repeat_count += int(is_repeat.sum())
        all_ids = used_ids | set(frame["job_id"])
        suffix = f"@{number}"
        while any(f"{job_id}{suffix}" in all_ids for job_id in frame.loc[is_repeat, "job_id"]):
            suffix += f"@{number}"
        frame["job_id"] = frame["job_id"].where(~is_repeat, frame["job_id"] + suffix)
        used_ids |= set(frame["job_id"])
        frames.append(frame.astype({c: "object" for c in frame if frame[c].dtype == "category"}))
    all_jobs = pd.concat(frames, ignore_index=True)
    notes = [_clock_sentence(sources, with_epoch)]
    if repeat_count:
        notes.append(
            f"{plural(repeat_count, 'id')} occurred in an earlier trace too: its trace number"
            " is added, e.g. @2."
        )
        if "dependency" in all_jobs:
            all_jobs = all_jobs.drop(columns="dependency")
            notes.append("Dependencies are dropped, because their ids are ambiguous.")
    trace = Trace.of(
        all_jobs,
        name=" + ".join(sources),
        epoch=zero.isoformat() if zero is not None else "",
        from_zero=all(source.trace.from_zero for source in sources.values()),
        doubts=dict.fromkeys(pair for source in sources.values() for pair in source.trace.doubts),
    )
    return Source(trace, MappingProxyType(_merge_accounts(sources, notes)))


def store_merged(files: Mapping[str, bytes], store: Store, owners: Sequence[str] = ()) -> TraceSpec:
    """Read several uploaded traces, store them as one, and return its source.

    Parameters
    ----------
    files : mapping of str to bytes
        Name -> file content, plain or packed.
    store : Store
        Where the merged trace is stored.
    owners : sequence of str
        Owners who may delete it.

    Raises
    ------
    TrainyardError
        If a trace cannot be read without an answer, or the traces cannot be merged.
    """
    options, sources = ReadOptions(max_bytes=MAX_UPLOAD_BYTES), {}
    for name, data in files.items():
        imported = read(data, name=name, options=options)
        sources[name] = Source(imported.trace, import_account(imported))
    source = merge_traces(sources)
    return TraceSpec(f"store:{store.put_trace(source.trace, source.account, owners)}")


def _clock_sentence(sources: Mapping[str, Source], with_epoch: list[str]) -> str:
    """Return the sentence on how the clocks of the traces are combined."""
    if with_epoch:
        return f"{len(sources)} traces are merged by date."
    return f"{len(sources)} traces are merged. None has a start date, so all start at second 0."


def _merge_accounts(sources: Mapping[str, Source], notes: list[str]) -> dict[str, Any]:
    """Return one reading report for several traces: sums, and sentences with their names."""
    accounts = {name: account.account for name, account in sources.items()}
    sentences = {
        kind: [
            f"{name}: {sentence}"
            for name, account in accounts.items()
            for sentence in account.get(kind, ())
        ]
        for kind in ("guesses", "warnings")
    }
    for name, account in accounts.items():
        if unanswered := [
            question for question in account.get("questions", ()) if not question["answer"]
        ]:
            sentences["guesses"].append(
                f"{name}: {plural(len(unanswered), 'question')} open, read with the default:"
                f" {unanswered[0]['text']}"
            )
    return {
        "format": "merged",
        "title": "several traces as one",
        "file": " + ".join(sources),
        **{key: sum(account.get(key, 0) for account in accounts.values()) for key in _COUNTS},
        "reasons": [
            {**item, "reason": f"{name}: {item['reason']}"}
            for name, account in accounts.items()
            for item in account.get("reasons", ())
        ],
        "guesses": [*notes, *sentences["guesses"]],
        "warnings": sentences["warnings"],
    }

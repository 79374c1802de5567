"""Several traces as one: on one clock, with ids of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import pandas as pd

from jobtraces import ReadOptions, read
from sim.errors import TraceError
from sim.trace import INSTANTS, Trace
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.text import plural
from trainyard.traces.intake import UNPACKED_BYTES
from trainyard.traces.sources import Source, account_of

_COUNTS: Final = ("read", "used", "dropped", "altered")


def merged(sources: Mapping[str, Source]) -> Source:
    """Return the jobs of several traces as one trace.

    Parameters
    ----------
    sources : mapping of str to Source
        What they are called -> the jobs, in order.

    Returns
    -------
    Source
        Where all of them say at which instant they begin, their jobs are at their instants; else
        all begin at second 0. Equal names of users, virtual clusters and types are the same ones.
        Ids that come again get the number of their trace. The account says all of this.

    Raises
    ------
    TraceError
        If there are fewer than two, or some of them say when they begin and others do not.
    """
    if len(sources) < 2:
        raise TraceError("To merge traces, name at least two.")
    starts = {name: one.trace.epoch for name, one in sources.items()}
    dated = [name for name, epoch in starts.items() if epoch]
    if dated and len(dated) < len(starts):
        other = next(name for name, epoch in starts.items() if not epoch)
        raise TraceError(
            f"{dated[0]} says at which instant it begins and {other} does not, so their jobs cannot"
            " be put on one clock. Give one of them alone."
        )
    zero = min((pd.Timestamp(starts[name]) for name in dated), default=None)
    frames, seen, again = [], set[str](), 0
    for number, (name, one) in enumerate(sources.items(), 1):
        frame = one.trace.frame.copy()
        if zero is not None:
            shift_s = (pd.Timestamp(starts[name]) - zero).total_seconds()
            for column in set(INSTANTS) & set(frame):
                frame[column] += shift_s
        twice = frame["job_id"].isin(seen)
        again += int(twice.sum())
        taken = seen | set(frame["job_id"])
        mark = f"@{number}"
        while any(f"{known}{mark}" in taken for known in frame.loc[twice, "job_id"]):
            mark += f"@{number}"
        frame["job_id"] = frame["job_id"].where(~twice, frame["job_id"] + mark)
        seen |= set(frame["job_id"])
        frames.append(frame.astype({c: "object" for c in frame if frame[c].dtype == "category"}))
    whole = pd.concat(frames, ignore_index=True)
    notes = [_on_clock(sources, dated)]
    if again:
        notes.append(
            f"{plural(again, 'id')} occurred in an earlier trace too: the number of the trace is"
            " added, e.g. @2."
        )
        if "dependency" in whole:
            whole = whole.drop(columns="dependency")
            notes.append("Dependencies are left out, because ids in them could mean two jobs.")
    trace = Trace.of(
        whole,
        name=" + ".join(sources),
        epoch=zero.isoformat() if zero is not None else "",
        from_zero=all(one.trace.from_zero for one in sources.values()),
        doubts=dict.fromkeys(pair for one in sources.values() for pair in one.trace.doubts),
    )
    return Source(trace, MappingProxyType(_account(sources, notes)))


def keep_merged(files: Mapping[str, bytes], store: Store, owners: Sequence[str] = ()) -> TraceSpec:
    """Read several uploaded traces, keep them as one, and return what names it in a scenario.

    Parameters
    ----------
    files : mapping of str to bytes
        Their contents by name, plain or packed.
    store : Store
        Where the one trace is kept.
    owners : sequence of str
        Who may delete it.

    Raises
    ------
    TrainyardError
        If one of them cannot be read without an answer, or they do not fit together.
    """
    options, sources = ReadOptions(max_bytes=UNPACKED_BYTES), {}
    for name, data in files.items():
        imported = read(data, name=name, options=options)
        sources[name] = Source(imported.trace, account_of(imported))
    made = merged(sources)
    return TraceSpec(f"store:{store.put_trace(made.trace, made.account, owners)}")


def _on_clock(sources: Mapping[str, Source], dated: list[str]) -> str:
    if dated:
        return f"{len(sources)} traces are one, each job at its instant."
    return (
        f"{len(sources)} traces are one. None says at which instant it begins, so all begin at"
        " second 0."
    )


def _account(sources: Mapping[str, Source], notes: list[str]) -> dict[str, Any]:
    accounts = {name: one.account for name, one in sources.items()}
    told = {
        kind: [
            f"{name}: {sentence}"
            for name, one in accounts.items()
            for sentence in one.get(kind, ())
        ]
        for kind in ("guesses", "warnings")
    }
    for name, one in accounts.items():
        if unanswered := [ask for ask in one.get("questions", ()) if not ask["answer"]]:
            told["guesses"].append(
                f"{name}: {plural(len(unanswered), 'question')} open, read as usual:"
                f" {unanswered[0]['text']}"
            )
    return {
        "format": "merged",
        "title": "several traces as one",
        "file": " + ".join(sources),
        **{key: sum(one.get(key, 0) for one in accounts.values()) for key in _COUNTS},
        "reasons": [
            {**item, "reason": f"{name}: {item['reason']}"}
            for name, one in accounts.items()
            for item in one.get("reasons", ())
        ],
        "guesses": [*notes, *told["guesses"]],
        "warnings": told["warnings"],
    }

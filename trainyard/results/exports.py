"""What a study leaves as tables for other programs: jobs, segments and decisions of every run, one
row each, exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pandas as pd

from sim.metrics import job_table
from sim.result import RunResult
from sim.trace import Trace
from trainyard.results.outcomes import Shown
from trainyard.store import Store
from trainyard.traces.sources import load_trace

CSV_LIMIT_MB: Final = 100.0
_ROW_BYTES: Final = 90
"""Of a CSV, about, as measured on jobs and segments of the samples."""
"""Tables of which more is stored are offered as Parquet only: as text they would be several times
as large, and built in memory.
"""


def jobs(shown: Shown, store: Store) -> pd.DataFrame:
    """Return one row per policy, repeat and job, see `sim.metrics.job_table`; jobs outside the
    measured window are there too.

    Raises
    ------
    TrainyardError
        If a stored result was removed meanwhile.
    """
    return _every_run(shown, store, lambda result, trace: job_table(result, trace, None))


def segments(shown: Shown, store: Store) -> pd.DataFrame:
    """Return one row per policy, repeat, job and period of constant grant and rate, with where it
    ran.

    Returns
    -------
    DataFrame
        policy, seed, job_id, t0_s and t1_s (seconds since the first submission), gpus, rate (work
        per second after the pause), paused_s, batch (-1 = none), ended, and places: ``node
        name:replicas×GPUs of each``, servers marked, separated by semicolons.

    Raises
    ------
    TrainyardError
        If a stored result was removed meanwhile.
    """
    nodes = [node.name for node in shown.study.base.cluster.nodes]
    return _every_run(shown, store, lambda result, trace: _segments(result, trace, nodes))


def decisions(shown: Shown, store: Store) -> pd.DataFrame:
    """Return one row per policy, repeat and call of the allocator, each of its own notes as a
    column of its own; empty where it noted nothing.

    Returns
    -------
    DataFrame
        policy, seed, t_s (seconds since the first submission), changed, waiting, running (jobs,
        after the plan), ``note: <name>``.

    Raises
    ------
    TrainyardError
        If a stored result was removed meanwhile.
    """
    return _every_run(shown, store, lambda result, trace: _decisions(result))


def csv_mb(shown: Shown, name: str) -> float:
    """Return about how large the CSV of a frame of `trainyard.store.FRAMES` is, over all complete
    runs, in MB.
    """
    return (
        sum(entry.rows[name] for at in shown.places for entry in shown.entries[at])
        * _ROW_BYTES
        / 1e6
    )


def _every_run(
    shown: Shown, store: Store, table: Callable[[RunResult, Trace], pd.DataFrame]
) -> pd.DataFrame:
    trace = load_trace(shown.study.base.trace, store)

    def made() -> Iterator[pd.DataFrame]:
        for at in shown.places:
            for turn, entry in enumerate(shown.entries[at]):
                found = table(entry.result(), trace)
                found.insert(0, "policy", shown.titles[at])
                found.insert(1, "seed", shown.study.base.seed + turn)
                yield found

    return pd.concat(made(), ignore_index=True)


def _segments(result: RunResult, trace: Trace, nodes: list[str]) -> pd.DataFrame:
    found = result.segments.rename(columns={"t0": "t0_s", "t1": "t1_s"})
    found.insert(0, "job_id", trace.frame["job_id"].to_numpy()[found.pop("job").to_numpy()])
    found["ended"] = found["ended"].astype("str")
    at = result.placements
    names = [nodes[node] if node < len(nodes) else "overflow" for node in at["node"]]
    remarks = [
        f"{name}:{count}×{gpus}{' server' if role else ''}"
        for name, count, gpus, role in zip(names, at["count"], at["gpus"], at["role"], strict=True)
    ]
    places = (
        pd.Series(remarks, index=at["segment"].to_numpy(), dtype="str")
        .groupby(level=0, sort=True)
        .agg("; ".join)
    )
    return found.assign(places=places.reindex(range(len(found)), fill_value="").to_numpy())


def _decisions(result: RunResult) -> pd.DataFrame:
    found = result.decisions.rename(columns={"t": "t_s"})
    notes = result.notes
    if notes.empty:
        return found
    wide = notes.assign(name="note: " + notes["name"].astype("str")).pivot_table(
        index="decision", columns="name", values="value", aggfunc="last", sort=False
    )
    return found.join(wide)

"""Tables of a study for other programs: jobs, segments and decisions of every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pandas as pd

from sim.metrics import job_table
from sim.result import RunResult
from sim.trace import Trace
from trainyard.results.outcomes import StudyResults
from trainyard.store import Store
from trainyard.traces.sources import load_trace

CSV_LIMIT_MB: Final = 100.0
"""Larger tables are offered as Parquet only: CSV is several times as large and built in memory."""
_ROW_BYTES: Final = 90
"""Approximate bytes per CSV row, measured on jobs and segments of the samples."""


def job_rows(shown: StudyResults, store: Store) -> pd.DataFrame:
    """Return one row per policy, repeat and job, see `sim.metrics.job_table`.

    Jobs outside the measured window are included.

    Raises
    ------
    TrainyardError
        If a stored result was deleted.
    """
    return _concat_runs(shown, store, lambda result, trace: job_table(result, trace, None))


def segment_rows(shown: StudyResults, store: Store) -> pd.DataFrame:
    """Return one row per policy, repeat, job and period of constant grant and rate.

    Returns
    -------
    DataFrame
        policy, seed, job_id, t0_s and t1_s (seconds since the first submission), gpus, rate (work
        per second after the pause), paused_s, batch (-1 = none), ended, and places: ``node
        name:replicas×GPUs of each``, servers marked, separated by semicolons.

    Raises
    ------
    TrainyardError
        If a stored result was deleted.
    """
    nodes = [node.name for node in shown.study.base.cluster.nodes]
    return _concat_runs(shown, store, lambda result, trace: _run_segments(result, trace, nodes))


def decision_rows(shown: StudyResults, store: Store) -> pd.DataFrame:
    """Return one row per policy, repeat and call of the allocator, with a column per note.

    Returns
    -------
    DataFrame
        policy, seed, t_s (seconds since the first submission), changed, waiting, running (jobs,
        after the plan), ``note: <name>``.

    Raises
    ------
    TrainyardError
        If a stored result was deleted.
    """
    return _concat_runs(shown, store, lambda result, trace: _run_decisions(result))


def csv_mb(shown: StudyResults, name: str) -> float:
    """Return the approximate CSV size, in MB, of a frame of `trainyard.store.FRAMES`."""
    return (
        sum(entry.rows[name] for at in shown.places for entry in shown.entries[at])
        * _ROW_BYTES
        / 1e6
    )


def _concat_runs(
    shown: StudyResults, store: Store, table: Callable[[RunResult, Trace], pd.DataFrame]
) -> pd.DataFrame:
    """Return a table of every complete run, concatenated, with policy and seed columns."""
    trace = load_trace(shown.study.base.trace, store)

    def tables() -> Iterator[pd.DataFrame]:
        """Yield the table of each complete run, with its policy and seed as first columns."""
        for at in shown.places:
            for turn, entry in enumerate(shown.entries[at]):
                frame = table(entry.result(), trace)
                frame.insert(0, "policy", shown.titles[at])
                frame.insert(1, "seed", shown.study.base.seed + turn)
                yield frame

    return pd.concat(tables(), ignore_index=True)


def _run_segments(result: RunResult, trace: Trace, nodes: list[str]) -> pd.DataFrame:
    """Return the segments of a run with job ids, and the nodes of each as one text."""
    segments = result.segments.rename(columns={"t0": "t0_s", "t1": "t1_s"})
    segments.insert(0, "job_id", trace.frame["job_id"].to_numpy()[segments.pop("job").to_numpy()])
    segments["ended"] = segments["ended"].astype("str")
    placements = result.placements
    names = [nodes[node] if node < len(nodes) else "overflow" for node in placements["node"]]
    node_texts = [
        f"{name}:{count}×{gpus}{' server' if role else ''}"
        for name, count, gpus, role in zip(
            names, placements["count"], placements["gpus"], placements["role"], strict=True
        )
    ]
    places = (
        pd.Series(node_texts, index=placements["segment"].to_numpy(), dtype="str")
        .groupby(level=0, sort=True)
        .agg("; ".join)
    )
    return segments.assign(places=places.reindex(range(len(segments)), fill_value="").to_numpy())


def _run_decisions(result: RunResult) -> pd.DataFrame:
    """Return the decisions of a run, with one more column per kind of note."""
    decisions = result.decisions.rename(columns={"t": "t_s"})
    notes = result.notes
    if notes.empty:
        return decisions
    wide = notes.assign(name="note: " + notes["name"].astype("str")).pivot_table(
        index="decision", columns="name", values="value", aggfunc="last", sort=False
    )
    return decisions.join(wide)

"""Grows the record of a run as columns of plain numbers, and turns it into frames at the end."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from sim.columns import Columns
from sim.contract import Floats, Grant, Ints
from sim.ledger import parts_of
from sim.perf.model import Usage
from sim.result import CAUSES, ENDINGS, OUTCOMES, ROLES

FINISHED, CHANGED, PREEMPTED, EVICTED, OPEN = range(len(ENDINGS))
COMPLETED, FAILED, REFUSED, IMPOSSIBLE, UNFINISHED = range(len(OUTCOMES))

_SEGMENTS: Final = {"job": "i", "t0": "d", "t1": "d", "gpus": "i", "rate": "d", "paused_s": "d", "batch": "i", "ended": "b"}
_PLACEMENTS: Final = {"segment": "i", "gang": "h", "role": "b", "node": "i", "count": "i", "gpus": "h", "cpus": "d", "mem_gb": "d"}
_DECISIONS: Final = {"t": "d", "changed": "i", "waiting": "i", "running": "i"}
_NOTES: Final = {"decision": "i", "value": "d"}
_OUTAGES: Final = {"node": "i", "t0": "d", "t1": "d"}
_FAILURES: Final = {"t": "d", "job": "i", "lost_work": "d", "survived": "b"}
_USAGE: Final = {"segment": "i", "role": "b", "cpus": "d", "mem_gb": "d"}
_CHUNK: Final = 4096


def _columns(kinds: Mapping[str, str]) -> dict[str, array[Any]]:
    return {name: array(kind) for name, kind in kinds.items()}


def _placement_rows(grant: Grant) -> list[tuple[float, ...]]:
    return [
        (gang, role, node, count, part.gpus, part.cpus, part.mem_gb)
        for gang, role, part in parts_of(grant)
        for node, count in zip(part.nodes, part.count, strict=True)
    ]


def _frame(columns: Mapping[str, array[Any]]) -> pd.DataFrame:
    # Arrays are wrapped, not copied: a long run leaves hundreds of megabytes here.
    return pd.DataFrame(
        {name: np.frombuffer(values, np.dtype(values.typecode)) if values else np.empty(0, values.typecode) for name, values in columns.items()},
        copy=False,
    )


class Record:
    """Segments, placements, decisions, notes and outages of one run."""

    def __init__(self) -> None:
        self._segments = _columns(_SEGMENTS)
        self._placements = _columns(_PLACEMENTS)
        self._decisions = _columns(_DECISIONS)
        self._notes = _columns(_NOTES)
        self._note_names: list[str] = []
        self._outages = _columns(_OUTAGES)
        self._causes: list[str] = []
        self._failures = _columns(_FAILURES)
        self._hits: list[tuple[str, str]] = []
        self._usage = _columns(_USAGE)
        self._open_outages: dict[int, int] = {}
        # Bound once: these are called for every job.
        self._segment = tuple(column.append for column in self._segments.values())
        self._unplaced: list[Grant] = []  # of the last segments, not yet written as placements
        self._decision = tuple(column.append for column in self._decisions.values())

    def segment(self, job: int, t1: float, columns: Columns, grant: Grant, ended: int) -> None:
        """Close a period of constant grant and rate that began at ``columns.segment_t0``, and note where it was."""
        a_job, a_t0, a_t1, a_gpus, a_rate, a_paused, a_batch, a_ended = self._segment
        batch = grant.tuning.batch_size
        t0, resume = columns.segment_t0[job], columns.resume[job]
        paused = (resume if resume < t1 else t1) - t0 if resume > t0 else 0.0
        a_job(job)
        a_t0(t0)
        a_t1(t1)
        a_gpus(columns.held_gpus[job])
        a_rate(columns.rate[job])
        a_paused(paused)
        a_batch(-1 if batch is None else batch)
        a_ended(ended)
        if paused:
            columns.paused_s[job] += paused
        self._unplaced.append(grant)
        if len(self._unplaced) >= _CHUNK:
            self._write_placements()

    def _write_placements(self) -> None:
        # Few distinct grants make up most of a chunk: their rows are written once and repeated.
        grants = self._unplaced
        codes: dict[int, int] = {}
        order = np.array([codes.setdefault(id(grant), len(codes)) for grant in grants])
        distinct = {codes[id(grant)]: grant for grant in grants}
        rows = [_placement_rows(distinct[code]) for code in range(len(codes))]
        lengths = np.array([len(part) for part in rows])
        starts = np.cumsum(lengths) - lengths
        repeats = lengths[order]
        ends = np.cumsum(repeats)
        picked = np.repeat(starts[order] - (ends - repeats), repeats) + np.arange(ends[-1])
        first = len(self._segments["job"]) - len(grants)
        table = np.array([row for part in rows for row in part])[picked]
        chunk = {"segment": np.repeat(np.arange(first, first + len(grants)), repeats)} | dict(zip(list(_PLACEMENTS)[1:], table.T, strict=True))
        for name, values in chunk.items():
            self._placements[name].frombytes(np.ascontiguousarray(values, _PLACEMENTS[name]).tobytes())
        grants.clear()

    def decision(self, t: float, changed: int, waiting: int, running: int) -> None:
        """Note a call of the allocator."""
        a_t, a_changed, a_waiting, a_running = self._decision
        a_t(t)
        a_changed(changed)
        a_waiting(waiting)
        a_running(running)

    def notes(self, notes: Mapping[str, float]) -> None:
        """Keep the allocator's own numbers with the decision noted last."""
        at = len(self._decisions["t"]) - 1
        for name, value in notes.items():
            self._notes["decision"].append(at)
            self._notes["value"].append(float(value))
            self._note_names.append(str(name))

    def failure(self, t: float, job: int, hit: tuple[str, str], lost_work: float, *, survived: bool) -> None:
        """Note that a job was hit, as (cause, role)."""
        for name, value in (("t", t), ("job", job), ("lost_work", lost_work), ("survived", survived)):
            self._failures[name].append(value)
        self._hits.append(hit)

    def usage(self, used: Iterable[Usage], busy: float) -> None:
        """Note what the roles of a job used in the segment noted last, of which it made progress for this share; cores idle otherwise, memory is held."""
        segment = len(self._segments["job"]) - 1
        for role, cpus, mem_gb in used:
            for name, value in (("segment", segment), ("role", ROLES.index(role)), ("cpus", cpus * busy), ("mem_gb", mem_gb)):
                self._usage[name].append(value)

    def node_down(self, node: int, t: float, cause: str) -> None:
        """Open an outage."""
        self._open_outages[node] = len(self._causes)
        for name, value in (("node", node), ("t0", t), ("t1", np.nan)):
            self._outages[name].append(value)
        self._causes.append(cause)

    def node_up(self, node: int, t: float) -> None:
        """Close it."""
        self._outages["t1"][self._open_outages.pop(node)] = t

    @property
    def decisions(self) -> int:
        """Number of decisions so far."""
        return len(self._decisions["t"])

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return all frames but that of the jobs."""
        if self._unplaced:
            self._write_placements()
        segments = _frame(self._segments)
        segments["ended"] = pd.Categorical.from_codes(segments["ended"].to_numpy(), categories=pd.Index(ENDINGS))
        notes, outages = _frame(self._notes), _frame(self._outages)
        notes.insert(1, "name", pd.Series(self._note_names, dtype="str"))
        outages["cause"] = pd.Categorical(self._causes, categories=["outage", "absent"])
        failures = _frame(self._failures)
        for name, values, known in (("cause", [cause for cause, _ in self._hits], CAUSES), ("role", [role for _, role in self._hits], ROLES)):
            failures[name] = pd.Categorical(values, categories=pd.Index(known))
        return {
            "segments": segments,
            "placements": _frame(self._placements),
            "decisions": _frame(self._decisions),
            "notes": notes,
            "outages": outages,
            "failures": failures,
            "usage": _frame(self._usage),
        }


def job_frame(columns: Columns, submit_s: Floats, gpus: Ints, sizes: tuple[Floats, Floats, Floats]) -> pd.DataFrame:
    """Return the frame of jobs, one row per job of the trace; ``sizes`` are true work, work as it was first believed, and work per second at best."""
    work, believed, fastest = sizes
    return pd.DataFrame(
        {
            "submit_s": submit_s,
            "first_start_s": columns.array("first_start_s"),
            "finish_s": columns.array("finish_s"),
            "gpus": gpus.astype(np.int32),
            "outcome": pd.Categorical.from_codes(columns.array("outcome").astype(np.int8), categories=pd.Index(OUTCOMES)),
            "preemptions": columns.array("preemptions"),
            "evictions": columns.array("evictions"),
            "relaunches": columns.array("relaunches"),
            "held_s": columns.array("held_s"),
            "paused_s": columns.array("paused_s"),
            "served_gpu_s": columns.array("served_gpu_s"),
            "work": work,
            "ideal_s": work / fastest,
            "believed_s": believed / fastest,
            "lost_work": columns.array("lost_work"),
        },
        copy=False,
    )

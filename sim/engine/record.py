"""The record of a run: packed columns of numbers, turned into tables at the end."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.contract import Floats, Ints
from sim.engine.ledger import Holding, parts_of
from sim.perf.model import Usage
from sim.result import CAUSES, ENDINGS, OUTCOMES, ROLES

FINISHED, CHANGED, PREEMPTED, EVICTED, OPEN = range(len(ENDINGS))
COMPLETED, FAILED, REJECTED, UNSCHEDULABLE, UNFINISHED = range(len(OUTCOMES))

_SEGMENTS: Final = {
    "job": "i",
    "t0": "d",
    "t1": "d",
    "gpus": "i",
    "rate": "d",
    "paused_s": "d",
    "batch": "i",
    "ended": "b",
}
_PLACEMENTS: Final = {
    "gang": "h",
    "role": "b",
    "node": "i",
    "count": "i",
    "gpus": "h",
    "cpus": "d",
    "mem_gb": "d",
}
_DECISIONS: Final = {"t": "d", "changed": "i", "waiting": "i", "running": "i"}
_NOTES: Final = {"decision": "i", "value": "d"}
_OUTAGES: Final = {"node": "i", "t0": "d", "t1": "d"}
_FAILURES: Final = {"t": "d", "job": "i", "lost_work": "d", "survived": "b"}
_USAGE: Final = {"segment": "i", "role": "b", "cpus": "d", "mem_gb": "d"}
_CHUNK: Final = 1 << 19  # bytes of segments


class _Rows:
    """Rows of numbers, packed as bytes for speed and converted to columns in chunks."""

    __slots__ = ("_columns", "kind", "pack", "packed")

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self.pack = Struct("=" + "".join(kinds.values())).pack
        self.packed = bytearray()
        self.kind = np.dtype(list(kinds.items()))
        self._columns = _empty_columns(kinds)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()))) + len(self.packed) // self.kind.itemsize

    def columns(self) -> dict[str, array[Any]]:
        """Convert the packed rows and return all rows as columns."""
        rows = np.frombuffer(self.packed, self.kind)
        for name, column in self._columns.items():
            column.frombytes(rows[name].tobytes())
        self.packed = bytearray()
        return self._columns


def _empty_columns(kinds: Mapping[str, str]) -> dict[str, array[Any]]:
    """Return an empty array per column name."""
    return {name: array(kind) for name, kind in kinds.items()}


def _frame(columns: Mapping[str, array[Any]]) -> pd.DataFrame:
    """Return a table of columns without copying."""
    # Arrays are wrapped, not copied: a long run has hundreds of megabytes here.
    return pd.DataFrame(
        {
            name: (
                np.frombuffer(values, np.dtype(values.typecode))
                if values
                else np.empty(0, values.typecode)
            )
            for name, values in columns.items()
        },
        copy=False,
    )


class Record:
    """Segments, placements, decisions, notes, outages, failures and usage of one run."""

    def __init__(self) -> None:
        self._segments, self._placements, self._decisions = (
            _Rows(_SEGMENTS),
            _Rows(_PLACEMENTS),
            _Rows(_DECISIONS),
        )
        self._placement_bytes = array("i")  # placement bytes per segment
        self._notes = _empty_columns(_NOTES)
        self._note_names: list[str] = []
        self._outages = _empty_columns(_OUTAGES)
        self._causes: list[str] = []
        self._failures = _empty_columns(_FAILURES)
        self._failure_hits: list[tuple[str, str]] = []
        self._usage = _empty_columns(_USAGE)
        self._open_outages: dict[int, int] = {}

    def segment(
        self, row: tuple[int, float, float, int, float, float, int, int], holding: Holding
    ) -> None:
        """Record a period of constant grant and rate, and its placements.

        `row` is a row of `RunResult.segments` with the code of its ending.
        """
        segments, placements = self._segments, self._placements
        segments.packed += segments.pack(*row)
        packed_placements = holding.packed_placements or self._pack_placements(holding)
        placements.packed += packed_placements
        self._placement_bytes.append(len(packed_placements))
        if len(segments.packed) > _CHUNK:
            segments.columns()
            placements.columns()

    def _pack_placements(self, holding: Holding) -> bytes:
        """Pack the placements of a holding and cache them in it."""
        rows = [
            self._placements.pack(gang, role, node, count, part.gpus, part.cpus, part.mem_gb)
            for gang, role, part in parts_of(holding.grant)
            for node, count in zip(part.nodes, part.count, strict=True)
        ]
        holding.packed_placements = b"".join(rows)
        return holding.packed_placements

    def decision(self, t: float, changed: int, waiting: int, running: int) -> None:
        """Record a call of the allocator."""
        self._decisions.packed += self._decisions.pack(t, changed, waiting, running)

    def notes(self, notes: Mapping[str, float]) -> None:
        """Record the allocator's numbers for the last recorded decision."""
        decision = len(self._decisions) - 1
        for name, value in notes.items():
            self._notes["decision"].append(decision)
            self._notes["value"].append(float(value))
            self._note_names.append(str(name))

    def failure(
        self, t: float, job: int, hit: tuple[str, str], lost_work: float, *, survived: bool
    ) -> None:
        """Record that a job was hit by (cause, role)."""
        for name, value in (
            ("t", t),
            ("job", job),
            ("lost_work", lost_work),
            ("survived", survived),
        ):
            self._failures[name].append(value)
        self._failure_hits.append(hit)

    def usage(self, used: Iterable[Usage], busy: float) -> None:
        """Record the resource use of a job's roles in the last recorded segment.

        `busy`: share of the segment with progress. Cores are idle in the other time; memory stays
        in use.
        """
        segment = len(self._segments) - 1
        for role, cpus, mem_gb in used:
            for name, value in (
                ("segment", segment),
                ("role", ROLES.index(role)),
                ("cpus", cpus * busy),
                ("mem_gb", mem_gb),
            ):
                self._usage[name].append(value)

    def node_down(self, node: int, t: float, cause: str) -> None:
        """Record the start of an outage."""
        self._open_outages[node] = len(self._causes)
        for name, value in (("node", node), ("t0", t), ("t1", np.nan)):
            self._outages[name].append(value)
        self._causes.append(cause)

    def node_up(self, node: int, t: float) -> None:
        """Record the end of a node's outage."""
        self._outages["t1"][self._open_outages.pop(node)] = t

    @property
    def decisions(self) -> int:
        """Number of decisions so far."""
        return len(self._decisions)

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return all tables of the result except that of the jobs."""
        placements = _frame(self._placements.columns())
        length = np.frombuffer(self._placement_bytes, np.int32) // self._placements.kind.itemsize
        placements.insert(0, "segment", np.repeat(np.arange(len(length), dtype=np.int32), length))
        segments = _frame(self._segments.columns())
        segments["ended"] = pd.Categorical.from_codes(
            segments["ended"].to_numpy(), categories=pd.Index(ENDINGS)
        )
        notes, outages = _frame(self._notes), _frame(self._outages)
        notes.insert(1, "name", pd.Series(self._note_names, dtype="str"))
        outages["cause"] = pd.Categorical(self._causes, categories=["outage", "absent"])
        failures = _frame(self._failures)
        for name, values, categories in (
            ("cause", [cause for cause, _ in self._failure_hits], CAUSES),
            ("role", [role for _, role in self._failure_hits], ROLES),
        ):
            failures[name] = pd.Categorical(values, categories=pd.Index(categories))
        return {
            "segments": segments,
            "placements": placements,
            "decisions": _frame(self._decisions.columns()),
            "notes": notes,
            "outages": outages,
            "failures": failures,
            "usage": _frame(self._usage),
        }


def job_frame(
    state: Callable[[str], NDArray[Any]],
    segments: pd.DataFrame,
    submit_s: Floats,
    gpus: Ints,
    sizes: tuple[Floats, Floats, Floats],
) -> pd.DataFrame:
    """Return the table of jobs, one row per job of the trace.

    `state` gives the columns of `sim.engine.columns.Columns` by name; `segments` are in order of
    time; `sizes` are true work, first estimate of the work, and best work per second.
    """
    work, estimated, fastest = sizes
    job, t0, t1 = (segments[name].to_numpy() for name in ("job", "t0", "t1"))
    first_start_s, finish_s = np.full((2, len(work)), np.nan)
    first_start_s[job[::-1]] = t0[::-1]
    finished = segments["ended"].cat.codes.to_numpy() == FINISHED
    finish_s[job[finished]] = t1[finished]
    return pd.DataFrame(
        {
            "submit_s": submit_s,
            "first_start_s": first_start_s,
            "finish_s": finish_s,
            "gpus": gpus.astype(np.int32),
            "outcome": pd.Categorical.from_codes(
                state("outcome").astype(np.int8), categories=pd.Index(OUTCOMES)
            ),
            "preemptions": state("preemptions"),
            "evictions": state("evictions"),
            "relaunches": state("relaunches"),
            "held_s": np.bincount(job, t1 - t0, len(work)),
            "paused_s": np.bincount(job, segments["paused_s"].to_numpy(), len(work)),
            "served_gpu_s": state("served_gpu_s"),
            "work": work,
            "ideal_s": work / fastest,
            "believed_s": estimated / fastest,
            "lost_work": state("lost_work"),
        },
        copy=False,
    )

"""Grows the record of a run as columns of plain numbers, and turns it into frames at the end."""

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
    """Rows of numbers, packed one behind the other as they come, which is what costs least, and
    turned into columns now and then.
    """

    __slots__ = ("_columns", "kind", "pack", "packed")

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self.pack = Struct("=" + "".join(kinds.values())).pack
        self.packed = bytearray()
        self.kind = np.dtype(list(kinds.items()))
        self._columns = _columns(kinds)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()))) + len(self.packed) // self.kind.itemsize

    def columns(self) -> dict[str, array[Any]]:
        """Return all rows as columns."""
        rows = np.frombuffer(self.packed, self.kind)
        for name, column in self._columns.items():
            column.frombytes(rows[name].tobytes())
        self.packed = bytearray()
        return self._columns


def _columns(kinds: Mapping[str, str]) -> dict[str, array[Any]]:
    return {name: array(kind) for name, kind in kinds.items()}


def _frame(columns: Mapping[str, array[Any]]) -> pd.DataFrame:
    # Arrays are wrapped, not copied: a long run leaves hundreds of megabytes here.
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
    """Segments, placements, decisions, notes and outages of one run."""

    def __init__(self) -> None:
        self._segments, self._placements, self._decisions = (
            _Rows(_SEGMENTS),
            _Rows(_PLACEMENTS),
            _Rows(_DECISIONS),
        )
        self._written = array("i")  # bytes of placements of each segment
        self._notes = _columns(_NOTES)
        self._note_names: list[str] = []
        self._outages = _columns(_OUTAGES)
        self._causes: list[str] = []
        self._failures = _columns(_FAILURES)
        self._hits: list[tuple[str, str]] = []
        self._usage = _columns(_USAGE)
        self._open_outages: dict[int, int] = {}

    def segment(
        self, row: tuple[int, float, float, int, float, float, int, int], holding: Holding
    ) -> None:
        """Note a period of constant grant and rate, a row of `RunResult.segments` with the code of
        its ending, and where it was.
        """
        segments, placements = self._segments, self._placements
        segments.packed += segments.pack(*row)
        written = holding.written or self._write(holding)
        placements.packed += written
        self._written.append(len(written))
        if len(segments.packed) > _CHUNK:
            segments.columns()
            placements.columns()

    def _write(self, holding: Holding) -> bytes:
        rows = [
            self._placements.pack(gang, role, node, count, part.gpus, part.cpus, part.mem_gb)
            for gang, role, part in parts_of(holding.grant)
            for node, count in zip(part.nodes, part.count, strict=True)
        ]
        holding.written = b"".join(rows)
        return holding.written

    def decision(self, t: float, changed: int, waiting: int, running: int) -> None:
        """Note a call of the allocator."""
        self._decisions.packed += self._decisions.pack(t, changed, waiting, running)

    def notes(self, notes: Mapping[str, float]) -> None:
        """Keep the allocator's own numbers with the decision noted last."""
        at = len(self._decisions) - 1
        for name, value in notes.items():
            self._notes["decision"].append(at)
            self._notes["value"].append(float(value))
            self._note_names.append(str(name))

    def failure(
        self, t: float, job: int, hit: tuple[str, str], lost_work: float, *, survived: bool
    ) -> None:
        """Note that a job was hit, as (cause, role)."""
        for name, value in (
            ("t", t),
            ("job", job),
            ("lost_work", lost_work),
            ("survived", survived),
        ):
            self._failures[name].append(value)
        self._hits.append(hit)

    def usage(self, used: Iterable[Usage], busy: float) -> None:
        """Note what the roles of a job used in the segment noted last, of which it made progress
        for this share; cores idle otherwise, memory is held.
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
        return len(self._decisions)

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return all frames but that of the jobs."""
        placements = _frame(self._placements.columns())
        length = np.frombuffer(self._written, np.int32) // self._placements.kind.itemsize
        placements.insert(0, "segment", np.repeat(np.arange(len(length), dtype=np.int32), length))
        segments = _frame(self._segments.columns())
        segments["ended"] = pd.Categorical.from_codes(
            segments["ended"].to_numpy(), categories=pd.Index(ENDINGS)
        )
        notes, outages = _frame(self._notes), _frame(self._outages)
        notes.insert(1, "name", pd.Series(self._note_names, dtype="str"))
        outages["cause"] = pd.Categorical(self._causes, categories=["outage", "absent"])
        failures = _frame(self._failures)
        for name, values, known in (
            ("cause", [cause for cause, _ in self._hits], CAUSES),
            ("role", [role for _, role in self._hits], ROLES),
        ):
            failures[name] = pd.Categorical(values, categories=pd.Index(known))
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
    """Return the frame of jobs, one row per job of the trace; their segments stand in order of
    time.

    ``state`` gives the columns of `sim.engine.columns.Columns` by name; ``sizes`` are true work,
    work as it was first estimated, and work per second at best.
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

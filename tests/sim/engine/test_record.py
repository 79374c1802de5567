"""Segments, placements, decisions and outages as they are written down."""

from __future__ import annotations

import numpy as np
import pytest

from sim.engine import record
from sim.engine.columns import Columns
from sim.engine.ledger import Holding
from sim.engine.record import CHANGED, FINISHED, PREEMPTED, Record, job_frame
from sim.grants import Gang, Grant, Part, Tuning
from sim.result import ENDINGS, OUTCOMES
from tests.sim.scripted import across, on


def held(
    t0: float, t1: float, grant: Grant, ended: int, *, rate: float = 1.0
) -> tuple[tuple[int, float, float, int, float, float, int, int], Holding]:
    return (1, t0, t1, 6, rate, 0.5, grant.tuning.batch_size or -1, ended), Holding(grant)


def test_an_empty_record_has_all_columns() -> None:
    frames = Record().frames()
    assert {name: list(frame.columns) for name, frame in frames.items()} == {
        "segments": ["job", "t0", "t1", "gpus", "rate", "paused_s", "batch", "ended"],
        "placements": ["segment", "gang", "role", "node", "count", "gpus", "cpus", "mem_gb"],
        "decisions": ["t", "changed", "waiting", "running"],
        "notes": ["decision", "name", "value"],
        "outages": ["node", "t0", "t1", "cause"],
        "failures": ["t", "job", "lost_work", "survived", "cause", "role"],
        "usage": ["segment", "role", "cpus", "mem_gb"],
    }
    assert all(frame.empty for frame in frames.values())


def test_a_segment_and_where_it_was() -> None:
    book = Record()
    servers = Part((3,), (2,), 0, 4.0, 8.0)
    forked = Grant(
        (Gang(Part((0, 2), (1, 2), 1, 1.5, 2.5), servers), Gang(Part((1,), (3,)))), Tuning(64)
    )
    book.segment(*held(2.0, 4.0, on(5), CHANGED))
    book.segment(*held(4.0, 9.0, forked, PREEMPTED, rate=2.0))
    frames = book.frames()
    assert frames["segments"].iloc[1].tolist() == [1, 4.0, 9.0, 6, 2.0, 0.5, 64, "preempted"]
    assert frames["segments"]["batch"].tolist() == [-1, 64]
    assert frames["placements"].to_numpy().tolist() == [
        [0, 0, 0, 5, 1, 1, 0, 0],
        [1, 0, 0, 0, 1, 1, 1.5, 2.5],
        [1, 0, 0, 2, 2, 1, 1.5, 2.5],
        [1, 0, 1, 3, 2, 0, 4.0, 8.0],
        [1, 1, 0, 1, 3, 1, 0, 0],
    ]


def test_placements_written_in_chunks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def placements(chunk: int) -> list[list[float]]:
        monkeypatch.setattr(record, "_CHUNK", chunk)
        book = Record()
        grants = [on(0), across({1: 1, 2: 2}), on(0)]
        for at in range(20):
            book.segment(*held(at, at + 1.0, grants[at % 3], FINISHED))
        rows: list[list[float]] = book.frames()["placements"].to_numpy().tolist()
        return rows

    assert placements(1) == placements(100) == placements(1000) == placements(1 << 19)
    assert len(placements(100)) == 27


def test_decisions_and_notes() -> None:
    book = Record()
    book.decision(1.0, 2, 3, 4)
    book.decision(2.0, 0, 3, 4)
    book.notes({"gap": 0.5, "price": 2})
    assert book.decisions == 2
    frames = book.frames()
    assert frames["decisions"].to_numpy().tolist() == [[1, 2, 3, 4], [2, 0, 3, 4]]
    assert frames["notes"].to_dict("records") == [
        {"decision": 1, "name": "gap", "value": 0.5},
        {"decision": 1, "name": "price", "value": 2.0},
    ]


def test_outages_close_their_own_row() -> None:
    book = Record()
    book.node_down(3, 1.0, "outage")
    book.node_down(4, 2.0, "absent")
    book.node_up(3, 5.0)
    book.node_down(3, 7.0, "outage")
    outages = book.frames()["outages"]
    assert outages["node"].tolist() == [3, 4, 3]
    assert outages["t0"].tolist() == [1, 2, 7]
    np.testing.assert_array_equal(outages["t1"], [5, np.nan, np.nan])
    assert outages["cause"].tolist() == ["outage", "absent", "outage"]


def test_the_frame_of_jobs() -> None:
    columns = Columns(2)
    columns.outcome[1], columns.preemptions[1], columns.lost_work[0] = 2, 3, 1.5
    book = Record()
    for begins, ends, ended in ((2.0, 4.0, PREEMPTED), (7.0, 10.0, FINISHED)):
        book.segment(*held(begins, ends, on(0), ended))
    segments = book.frames()["segments"]
    frame = job_frame(
        columns.array,
        segments,
        np.array([0.0, 1.0]),
        np.array([4, 0]),
        (np.array([10.0, 20.0]), np.array([20.0, np.nan]), np.array([2.0, 1.0])),
    )
    assert frame["outcome"].tolist() == ["completed", "refused"]
    assert list(frame["outcome"].cat.categories) == list(OUTCOMES)
    assert frame["preemptions"].tolist() == [0, 3]
    assert frame["lost_work"].tolist() == [1.5, 0]
    assert frame["work"].tolist() == [10, 20]
    assert frame["ideal_s"].tolist() == [5, 20]
    np.testing.assert_array_equal(frame["first_start_s"], [np.nan, 2])
    np.testing.assert_array_equal(frame["finish_s"], [np.nan, 10])
    assert frame["held_s"].tolist() == [0, 5]
    assert frame["paused_s"].tolist() == [0, 1]


def test_endings_are_in_their_order() -> None:
    assert ENDINGS[FINISHED] == "finished"
    assert ENDINGS[CHANGED] == "changed"
    assert ENDINGS[PREEMPTED] == "preempted"

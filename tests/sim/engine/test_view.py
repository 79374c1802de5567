"""What an allocator is shown: the right numbers at every instant, read-only, and nothing that it
did not ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import pytest

from sim.cluster import Change, Cluster, NodeGroup
from sim.contract import READS, Cadence, Needs, Plan, View
from sim.engine.faults import Faults
from sim.errors import ContractError
from sim.grants import Shape
from sim.overheads import Overheads
from sim.perf.estimators import Biased
from sim.trace import Trace
from tests.sim.scripted import Script, across, jobs, on, run

TRACE = jobs(
    (0, 1, 10),
    (0, 2, 20),
    (3, 1, 5),
    user=["ann", "bob", "ann"],
    priority=[2, None, 1],
    cpus=[4, None, 2],
    start_time_s=[1, 2, 3],
)
FREE_TEXT = frozenset({"remaining_work", "recorded_start", "rates", "pause", "telemetry"})


def looking(
    at_s: float,
    look: Callable[[View], Any],
    *,
    reads: frozenset[str] = FREE_TEXT,
    trace: Trace = TRACE,
    changes: tuple[Change, ...] = (),
    **more: Any,
) -> Any:
    """Run jobs 0 and 1 from 0, wake at `at_s`, and return what `look` makes of the view."""
    seen: list[Any] = []

    def step(view: View) -> Plan:
        seen.append(look(view))
        return Plan()

    start = {0: on(0, 1, 1, 4.0), 1: across({0: 1, 1: 1})}
    run(
        trace,
        Cluster((NodeGroup(2, 2, "v100", cpus=8, mem_gb=16),), changes=changes),
        Script({0: start, at_s: step}, needs=Needs(reads)),
        horizon_s=at_s + 1,
        **more,
    )
    return seen[0]


def test_the_tables_hold_who_waits_and_who_runs() -> None:
    def look(view: View) -> list[list[int]]:
        return [table.ids.tolist() for table in (view.waiting, view.running, view.active)]

    assert looking(4.0, look) == [[2], [0, 1], [0, 1, 2]]
    assert looking(
        4.0, lambda view: [len(table) for table in (view.waiting, view.running, view.active)]
    ) == [1, 2, 3]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("arrival_s", [0, 0, 3]),
        ("gpus", [1, 2, 1]),
        ("held_gpus", [1, 2, 0]),
        ("served_gpu_s", [4, 8, 0]),
        ("served_cpu_s", [16, 0, 0]),
        ("remaining_work", [6, 16, 5]),
        ("rate", [1, 1, 0]),
        ("priority", [2, 0, 1]),
        ("cpus", [4, 0, 2]),
        ("mem_gb", [0, 0, 0]),
        ("deadline_s", [inf] * 3),
        ("time_limit_s", [inf] * 3),
        ("recorded_start_s", [1, 2, 3]),
        ("user", [0, 1, 0]),
        ("vc", [0, 0, 0]),
        ("preemptible", [1, 1, 1]),
    ],
)
def test_columns_of_active_jobs_after_four_seconds(column: str, values: list[float]) -> None:
    assert looking(4.0, lambda view: view.active.column(column).tolist()) == values
    assert looking(4.0, lambda view: getattr(view.active, column).tolist()) == values
    assert looking(4.0, lambda view: [view.one(column, job) for job in range(3)]) == values


@pytest.mark.parametrize("name", ["min_batch", "max_batch", "batch_size"])
def test_what_plays_no_role_is_not_a_number(name: str) -> None:
    assert np.isnan(looking(4.0, lambda view: view.active.column(name))).all()


@pytest.mark.parametrize("name", ["min_gpus", "max_gpus"])
def test_a_rigid_job_may_not_be_resized(name: str) -> None:
    assert looking(4.0, lambda view: view.active.column(name).tolist()) == looking(
        4.0, lambda view: view.active.gpus.tolist()
    )


def test_a_pausing_job_makes_no_progress() -> None:
    def look(view: View) -> list[float]:
        return [view.one(name, 0) for name in ("rate", "remaining_work", "served_gpu_s")]

    # A pause of 3 s: nothing done at 2, under way from 3 on, one second of work at 4.
    assert looking(2.0, look, overheads=Overheads(start_s=3)) == [0, 10, 2]
    assert looking(3.0, look, overheads=Overheads(start_s=3)) == [1, 10, 3]
    assert looking(4.0, look, overheads=Overheads(start_s=3)) == [1, 9, 4]
    assert looking(
        2.0, lambda view: view.running.remaining_work.tolist(), overheads=Overheads(start_s=3)
    ) == [10, 20]


def test_names_behind_codes() -> None:
    assert looking(4.0, lambda view: view.names("user")) == ("ann", "bob", "")
    assert looking(4.0, lambda view: view.names("vc")) == ("",)


def test_free_room_and_capacity_per_node() -> None:
    def look(view: View) -> list[list[float]]:
        return [
            view.free_gpus.tolist(),
            view.free_cpus.tolist(),
            view.free_mem_gb.tolist(),
            view.capacity.tolist(),
            view.installed.tolist(),
        ]

    assert looking(4.0, look) == [[0, 1], [4, 8], [16, 16], [2, 2], [2, 2]]
    # Node 1 is gone: job 1 is evicted, and node 0 gets its GPU back.
    gone = [[1, 0], [4, 0], [16, 0], [2, 0]]
    assert looking(4.0, look, faults=Faults(outages="1:2:9")) == [*gone, [2, 2]]
    # By date it is not there at all.
    leaves = (Change(2.0, (1,), present=False), Change(9.0, (1,), present=True))
    assert looking(4.0, look, changes=leaves) == [*gone, [2, 0]]


def test_arrays_are_read_only_and_gathered_once() -> None:
    def look(view: View) -> bool:
        for table in (view.waiting, view.running, view.active):
            for name in ("ids", "gpus", "served_gpu_s", "rate", "preemptible", "user"):
                assert table.column(name) is table.column(name)
                with pytest.raises(ValueError, match="read-only"):
                    table.column(name)[0] = 1
        return True

    assert looking(4.0, look)


@pytest.mark.parametrize(
    "column", ["duration_s", "end_time_s", "start_time_s", "status", "work", "left", "anything"]
)
def test_the_future_is_no_column(column: str) -> None:
    def look(view: View) -> None:
        for read in (
            lambda: view.active.column(column),
            lambda: getattr(view.active, column),
            lambda: view.one(column, 0),
        ):
            with pytest.raises(
                ContractError, match=f"there is no column '{column}' that an allocator may read"
            ):
                read()

    looking(4.0, look)


@pytest.mark.parametrize(
    ("need", "read"),
    [
        ("remaining_work", lambda view: view.active.remaining_work),
        ("remaining_work", lambda view: view.one("remaining_work", 0)),
        ("recorded_start", lambda view: view.one("recorded_start_s", 0)),
        ("recorded_start", lambda view: view.waiting.column("recorded_start_s")),
        ("rates", lambda view: view.estimates.rate(0, on(0))),
        ("rates", lambda view: view.estimates.rates(view.running.ids, [Shape((1,))])),
        ("pause", lambda view: view.estimates.pause_s(0, None, on(0))),
        ("telemetry", lambda view: view.telemetry(0)),
        ("resources", lambda view: view.estimates.resources(0) or "nothing told"),
    ],
)
def test_what_was_not_declared_is_not_shown(need: str, read: Callable[[View], Any]) -> None:
    def refused(view: View) -> bool:
        with pytest.raises(ContractError, match="does not declare"):
            read(view)
        return True

    assert need in READS
    assert looking(4.0, refused, reads=FREE_TEXT - {need})
    assert looking(4.0, lambda view: read(view) is not None, reads=frozenset({need}))


def test_estimators_and_telemetry() -> None:
    assert looking(
        4.0, lambda view: view.active.remaining_work.tolist(), estimator=Biased(2.0)
    ) == [
        16,
        36,
        10,
    ]
    assert looking(
        4.0,
        lambda view: view.estimates.rates(view.running.ids, [Shape((1,)), Shape((2,), 2)]).tolist(),
    ) == [[1, 0], [0, 1]]
    # Job 2 waits and never ran; job 0 runs, so that its next start is a restart.
    assert looking(
        4.0,
        lambda view: [view.estimates.pause_s(job, None, on(0)) for job in (2, 0)],
        overheads=Overheads(start_s=3, restart_s=7),
    ) == [3, 7]
    assert looking(4.0, lambda view: view.telemetry(0)) == (
        {"worker": 4.0},
        {"worker": 0.0},
        {"worker": (1.0,)},
    )
    assert looking(4.0, lambda view: view.telemetry(1).speed) == {"worker": (1.0, 1.0)}


def test_a_stopped_job_keeps_what_it_was_served() -> None:
    seen: list[list[float]] = []

    def step(view: View) -> Plan:
        seen.append(
            [
                view.one(name, 0)
                for name in ("served_gpu_s", "served_cpu_s", "held_gpus", "rate", "remaining_work")
            ]
        )
        return Plan()

    script = Script({0: {0: on(0, 1, 1, 4.0)}, 4: {0: None}, 6: step}, needs=Needs(FREE_TEXT))
    run(jobs((0, 1, 10)), "1x1:v100/8c", script, horizon_s=7.0)
    assert seen == [[4, 16, 0, 0, 6]]


def test_attributes_of_python_itself_are_no_columns() -> None:
    assert looking(4.0, lambda view: hasattr(view.active, "__array__")) is False


def test_everything_is_offered_at_one_instant_only() -> None:
    served: list[float] = []

    def step(view: View) -> Plan:
        served.append(float(view.running.served_gpu_s[0]))
        return Plan({0: on(0)} if not served[1:] and view.now_s == 0 else {})

    script = Script({0: {0: on(0)}, 2: step, 3: step}, Cadence(on_arrival=True))
    run(jobs((0, 1, 10)), "1x1:v100", script)
    assert served == [2, 3]


def test_random_numbers_are_of_the_seed() -> None:
    def draw(view: View) -> float:
        return float(view.rng.random())

    assert looking(4.0, draw, seed=1) == looking(4.0, draw, seed=1) != looking(4.0, draw, seed=2)


def test_reaching_a_target_changes_only_what_differs() -> None:
    def step(view: View) -> Plan:
        plan = Plan.reach(
            view, {1: across({0: 1, 1: 1}), 2: on(0)}, wake_at_s=7.0, notes={"n": 1.0}
        )
        assert dict(plan.changes) == {0: None, 2: on(0)}
        assert (plan.wake_at_s, plan.notes, plan.refuse) == (7.0, {"n": 1.0}, frozenset())
        moved = Plan.reach(view, {0: on(1), 1: across({0: 1, 1: 1})})
        assert (dict(moved.changes), moved.wake_at_s) == ({0: on(1)}, inf)
        return plan

    result = run(
        TRACE,
        "2x2:v100/8c",
        Script({0: {0: on(0), 1: across({0: 1, 1: 1})}, 4.0: step}),
        horizon_s=6.0,
    )
    assert result.jobs["preemptions"].tolist() == [1, 0, 0]
    assert result.jobs["first_start_s"].tolist() == [0, 0, 4]

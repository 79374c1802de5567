"""Plans of single cores: by hand, and against a search over all instants."""

from __future__ import annotations

import random
from math import inf
from typing import Any

import pandas as pd
import pytest

from allocators import make
from allocators.sites.slurm.controller import Controller
from allocators.sites.slurm.core_plans import CorePlanner
from allocators.sites.slurm.fairshare import FairShare
from allocators.sites.slurm.rules import Rules, SlurmPartition, Timers
from allocators.sites.slurm.select import FreeNodes
from allocators.sites.slurm.state import SlurmJob
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.simulator import Simulator
from sim.trace import Trace


def job(number: int, cores: int, limit_s: float, **more: object) -> SlurmJob:
    values: dict[str, object] = {"user": "u", "account": "", "partition": 0, "since_s": 0.0}
    return SlurmJob(number, tasks=cores, allowed=(15,), limit_s=limit_s, **{**values, **more})  # type: ignore[arg-type]


def machines(count: int, cores: float) -> FreeNodes:
    return FreeNodes([0] * count, [cores] * count, [inf] * count)


def controller(nodes: FreeNodes, *, by_cores: bool) -> Controller:
    rules = Rules(multifactor=False, by_cores=by_cores)
    fair = FairShare((), inf, 1.0, tree=True)
    return Controller(rules, [SlurmPartition(nodes.up)], nodes, fair, Timers())


JOBS = (
    job(0, 6, 600.0),  # runs
    job(1, 4, 600.0),  # planned from 600 to 1200
    job(2, 1, 1800.0),  # 2 cores are free now, and beside job 1
    job(3, 4, 600.0),  # beside jobs 1 and 2 only 3 are: from 1200
    job(4, 3, 600.0),  # those 3: from 600 to 1200
    job(5, 1, 900.0),  # from 600 on nothing is left before 1200
    job(6, 1, 590.0),  # ends before
)


@pytest.mark.parametrize(("by_cores", "expected"), [(True, [0, 2, 6]), (False, [0, 6])])
def test_plans_share_a_node(by_cores: bool, expected: list[int]) -> None:
    made = controller(machines(1, 8.0), by_cores=by_cores)
    for number, one in enumerate(JOBS):
        made.submit(0.0, job(number, one.tasks, one.limit_s))
    assert [one.id for one in made.tick(0.0)] == expected
    made.end(590.0, 6)
    assert made.tick(593.0) == []
    made.end(600.0, 0)
    # The main pass takes what fits in the order of the queue until one does not.
    assert [one.id for one in made.tick(603.0)] == ([1] if by_cores else [1, 2])


def test_a_plan_of_a_whole_node_shares_it_with_nobody() -> None:
    made = controller(machines(1, 8.0), by_cores=True)
    made.submit(0.0, job(0, 6, 600.0))
    made.submit(0.0, job(1, 1, 600.0, whole=True))
    made.submit(0.0, job(2, 1, 900.0))
    made.submit(0.0, job(3, 1, 500.0))
    assert [one.id for one in made.tick(0.0)] == [0, 3]


@pytest.mark.parametrize(("window_s", "planned"), [(599.0, None), (600.0, ())])
def test_a_plan_begins_at_the_end_of_the_window_at_the_latest(
    window_s: float, planned: tuple[()] | None
) -> None:
    nodes = machines(1, 8.0)
    first = job(0, 6, 600.0, start_s=0.0)
    first.hold(((0, 6),))
    nodes.take(first, first.held)
    planner = CorePlanner(nodes, window_s, 1.0, 0.0, linear=False)
    planner.begin(0.0)
    planner.look_ahead([first])
    assert planner.place(job(1, 4, 60.0), nodes.up, keeps=True) == planned
    # A job for which no room is kept may start now, and only now.
    assert planner.place(job(2, 2, 60.0), nodes.up, keeps=False) == ((0, 2),)
    assert planner.place(job(3, 4, 60.0), nodes.up, keeps=False) is None


def test_every_start_is_the_first_at_which_enough_is_free_for_the_whole_limit() -> None:
    draw = random.Random(5)
    planned = 0
    for _ in range(60):
        count, cores = draw.randint(1, 3), draw.choice([4.0, 8.0])
        nodes = machines(count, cores)
        held: list[tuple[float, float, int, int]] = []  # from, to, node, cores

        def free(
            node: int, from_s: float, to_s: float, held: Any = held, all_: float = cores
        ) -> float:
            """At its least in a span, both ends included."""
            own = [one for one in held if one[2] == node]
            at = [from_s, *[begin for begin, *_ in own if from_s <= begin <= to_s]]
            return all_ - max(sum(one[3] for one in own if one[0] <= t < one[1]) for t in at)

        planner = CorePlanner(nodes, 86_400.0, 1.0, 0.0, linear=False)
        planner.begin(0.0)
        planner.look_ahead([])
        running: list[SlurmJob] = []
        plan_ends: list[float] = []
        for number in range(14):
            one = job(number, draw.randint(1, int(cores)), 60.0 * draw.randint(1, 9))
            found = planner.place(one, nodes.up, keeps=True)
            assert found is not None
            start_s = 0.0
            if found:
                one.start_s = start_s
                one.hold(found)
                nodes.take(one, found)
                running.append(one)
                planner.forget()
                planner.look_ahead(running)
            else:
                start_s, _, _, at = planner._booked[-1]
                one.hold(at)
                planned += 1
            # Ends of running jobs are gathered in steps, so only of the others each is looked at.
            for before_s in [0.0, *plan_ends] if start_s else []:
                if before_s < start_s:
                    room = [
                        max(free(at, before_s, before_s + one.limit_s), 0.0) for at in range(count)
                    ]
                    assert sum(room) < one.tasks
            for node, tasks in one.held:
                assert free(node, start_s, start_s + one.limit_s) >= tasks
                held.append((start_s, start_s + one.limit_s, node, tasks))
            if start_s:
                plan_ends.append(start_s + one.limit_s)
    assert planned > 200


def test_a_run_by_cores_waits_less_and_is_a_parameter() -> None:
    # One node of 8 GPUs: as above.
    rows = [
        {"job_id": str(at), "submit_time_s": float(at), "num_gpus": one.tasks,
         "duration_s": one.limit_s, "time_limit_s": one.limit_s}
        for at, one in enumerate(JOBS)
    ]  # fmt: skip
    trace = Trace.of(pd.DataFrame(rows))

    def starts(plan: str) -> list[float]:
        policy = make(Spec.of("slurm", plan=plan, weight_fairshare=0, weight_size=0))
        cluster = Cluster.parse("1x8:v100")
        return Simulator(trace, cluster, policy).run().jobs["first_start_s"].tolist()

    nodes, cores = starts("nodes"), starts("cores")
    assert cores[2] < 100
    assert nodes[2] >= 600

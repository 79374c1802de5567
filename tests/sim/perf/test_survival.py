"""Jobs that deal their data in shards: what an interruption costs them, and who was hit by what;
computed by hand at rate 1.
"""

from __future__ import annotations

import numpy as np
import pytest

from sim.contract import Gang, Grant, Part, Tuning
from sim.engine.faults import Faults
from sim.overheads import Overheads
from sim.perf.model import Rate, Usage
from tests.sim.scripted import Bends, Script, across, gantt, jobs, on, run

SHARDS = Tuning(sharding=True)
WORKERS, SERVERS = Part((0,), (3,), 0, 1.0), Part((1,), (1,), 0, 1.0)
CLUSTER = "2x0:cpu"
STAFFED = Grant((Gang(WORKERS, SERVERS),), SHARDS)


def of_first(seed: int, attempt: int) -> tuple[float, float]:
    faults = Faults(interruptions_per_node_h=36.0)
    return faults.interruption_s(seed, 0, attempt) / 2, faults.hit(seed, 0, attempt)


@pytest.mark.parametrize("seed", range(6))
def test_an_interruption_costs_the_share_of_the_replica_that_it_hits(seed: int) -> None:
    after_s, hit = of_first(seed, 0)
    again_s, _ = of_first(seed, 1)
    # Four replicas on two nodes: three workers take the first three quarters. 60 s to relaunch hold
    # up a worker's third, or all for a server.
    pause_s = 60.0 if hit * 4 >= 3 else 20.0
    length = after_s + again_s * 0.5
    result = run(
        jobs((0, 0, length), cpus=[1]),
        CLUSTER,
        Script({0: {0: STAFFED}}),
        Overheads(relaunch_s=60),
        Faults(interruptions_per_node_h=36.0),
        seed=seed,
    )
    # The second interruption comes again_s after the first; by then the job has done after_s +
    # again_s - pause_s.
    done_first = pause_s <= again_s * 0.5
    row = result.jobs.loc[0]
    assert row["relaunches"] == 1 if done_first else row["relaunches"] >= 1
    assert row["evictions"] == row["lost_work"] == row["preemptions"] == 0
    if done_first:
        assert row["finish_s"] == pytest.approx(length + pause_s)
        assert row["paused_s"] == pytest.approx(pause_s)
    failure = result.failures.loc[0]
    assert (failure["cause"], failure["role"], failure["survived"]) == (
        "interruption",
        "server" if pause_s == 60 else "worker",
        1,
    )


def test_without_shards_the_whole_job_is_interrupted() -> None:
    plain = Grant((Gang(WORKERS, SERVERS),))
    result = run(
        jobs((0, 0, 1e4), cpus=[1]),
        CLUSTER,
        Script({0: {0: plain}}),
        None,
        Faults(interruptions_per_node_h=36.0),
        horizon_s=2000.0,
    )
    assert result.jobs.loc[0, ["relaunches", "evictions"]].tolist() == [0, 1]
    assert result.failures[["cause", "role", "survived"]].to_numpy().tolist() == [
        ["interruption", "worker", 0]
    ]


def test_workers_come_and_go_without_a_pause_but_servers_do_not() -> None:
    more = Grant((Gang(Part((0,), (4,), 0, 1.0), SERVERS),), SHARDS)
    bigger = Grant((Gang(Part((0,), (4,), 0, 1.0), Part((1,), (2,), 0, 1.0)),), SHARDS)
    script = Script({0: {0: STAFFED}, 4: {0: more}, 8: {0: bigger}})
    result = run(
        jobs((0, 0, 20), cpus=[1]),
        CLUSTER,
        script,
        Overheads(restart_s=5, overlap_s=2, overlap_pause_s=1),
    )
    # The old servers serve on for 2 s, then 1 s of pause: 20 + 1.
    assert result.jobs.loc[0, ["finish_s", "paused_s"]].tolist() == [21, 1]
    assert result.segments[["t0", "t1"]].to_numpy().tolist() == [[0, 4], [4, 8], [8, 10], [10, 21]]


def test_an_overlap_pauses_as_long_as_a_restart_unless_told() -> None:
    script = Script({0: {0: on(0)}, 4: {0: on(1)}})
    result = run(jobs((0, 1, 10)), "2x1:v100", script, Overheads(restart_s=3, overlap_s=2))
    assert gantt(result)[-1] == "j0 6-13 n1x1 pause 3 finished"


def test_who_runs_out_of_memory_is_told() -> None:
    def rate(job: int, grant: Grant, done: float, now_s: float) -> Rate:
        return Rate(1.0, until_work=4.0, then="oom", role="server")

    script = Script({0: {0: on(0)}})
    result = run(
        jobs((0, 1, 10)),
        "1x1:v100",
        script,
        Overheads(checkpoint_every_s=3),
        Faults(retries=0),
        perf=Bends(rate),
    )
    assert result.jobs.loc[0, "outcome"] == "failed"
    assert result.failures.to_numpy().tolist() == [[4.0, 0, 1.0, 0, "oom", "server"]]


def test_what_is_used_is_a_mean_over_each_segment() -> None:
    class Uses(Bends):
        def bind(self, trace, cluster):  # type: ignore[no-untyped-def]
            model = super().bind(trace, cluster)

            class Told(type(model)):  # type: ignore[misc]
                def usage(self, job, grant, done, now_s):  # type: ignore[no-untyped-def]
                    gpus = sum(grant.gangs[0].workers.count)
                    return (Usage("worker", 2.0 * gpus, 1.0 + sum(done) / 2),)

            model.__class__ = Told
            return model

    script = Script({0: {0: on(0)}, 4: {0: across({0: 1, 1: 1})}})
    result = run(
        jobs((0, 1, 10)),
        "2x1:v100",
        script,
        Overheads(start_s=1, restart_s=2),
        perf=Uses(lambda *_: Rate(1.0)),
    )
    # Work 0 to 3 in 4 s, of which 1 s of pause; then 3 to 10 in 9 s, of which 2 s.
    assert result.usage["segment"].tolist() == [0, 1]
    np.testing.assert_allclose(
        result.usage[["cpus", "mem_gb"]], [[2 * 3 / 4, 2.5], [4 * 7 / 9, 7.5]]
    )

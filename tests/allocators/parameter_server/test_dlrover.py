from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest

from allocators import make
from allocators.parameter_server.dlrover import DLRover
from allocators.parameter_server.replicas import Rebuild
from allocators.parameter_server.scaling_rules import (
    COLD,
    PRESETS,
    EarlierSpeed,
    FinishedJob,
    History,
    JobResources,
    Measurement,
    Watched,
    after_oom,
    central_mean,
    final_gb,
    first_servers,
    halve_resources,
    hot_servers,
    more_workers,
    servers_within,
    workers_within,
)
from allocators.placement import Placer
from allocators.queue.fifo import Fifo
from sim.cluster import Cluster
from sim.contract import Allocator, Grant, ParameterError, Plan, Spec, View
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.perf.parameter_server import ParameterServer
from sim.result import RunResult
from sim.trace import Trace

# A step of one sample takes 84 core-ms on a worker, 144 core-ms on the servers for every worker,
# and 4 ms.
TOY = "toy cpu 84 0 0 144 0 0 4 2"
LONG_S = 1e6
CODE = PRESETS["code"]
COSTS = Overheads(restart_s=400, overlap_s=100, overlap_pause_s=50)


def toy(samples: float, **columns: Any) -> Trace:
    """One job of two workers and a server, one sample per worker and step; columns of several jobs
    may be given as lists.
    """
    row: dict[str, Any] = {
        "submit_time_s": 0.0,
        "num_gpus": 0,
        "duration_s": 1.0,
        "model": "toy",
        "name": "ads",
        "user": "ann",
        "batch_size": 2.0,
    }
    row |= {
        "total_steps": samples / 2,
        "workers": 2.0,
        "servers": 1.0,
        "worker_cpus": 4.0,
        "server_cpus": 8.0,
        "worker_mem_gb": 8.0,
        "server_mem_gb": 40.0,
    }
    row |= {
        "asynchronous": 1.0,
        "worker_mem_need_gb": 5.0,
        "server_mem_need_gb": 28.0,
        "server_mem_growth_gb": 0.0,
    } | columns
    count = max([len(value) for value in row.values() if isinstance(value, list)], default=1)
    frame = pd.DataFrame(
        {name: value if isinstance(value, list) else [value] * count for name, value in row.items()}
    )
    return Trace.of(frame.assign(job_id=[f"j{at}" for at in range(count)]))


@dataclass
class Watch:
    """Notes what every job is made of whenever that changes."""

    inner: Allocator
    made: list[tuple[float, int, JobResources]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cadence, self.needs, self.card = self.inner.cadence, self.inner.needs, self.inner.card

    def allocate(self, view: View) -> Plan:
        plan = self.inner.allocate(view)
        for job, grant in plan.changes.items():
            if grant is not None:
                workers, servers = grant.gangs[0]
                assert servers is not None
                self.made.append(
                    (
                        view.now_s,
                        job,
                        JobResources(
                            sum(workers.count),
                            workers.cpus,
                            workers.mem_gb,
                            sum(servers.count),
                            servers.cpus,
                            servers.mem_gb,
                        ),
                    )
                )
        return plan

    def of(self, job: int = 0) -> list[tuple[float, JobResources]]:
        return [(at_s, config) for at_s, own, config in self.made if own == job]


def run(
    trace: Trace,
    spec: str = "dlrover",
    cluster: str = "10x0:cpu/64c/256g",
    *,
    slow: str = "",
    **conditions: Any,
) -> tuple[RunResult, Watch]:
    watch = Watch(make(Spec.parse(spec)))
    perf = ParameterServer(rows=TOY, slow=slow)
    conditions = {"overheads": COSTS} | conditions
    return (
        Simulator(trace, Cluster.parse(cluster), watch, Conditions(perf, **conditions)).run(),
        watch,
    )


# -- the stages
# --------------------------------------------------------------------------------------------------


def test_walk_through_the_stages() -> None:
    result, watch = run(toy(500_000))
    # One worker of 12 cores, 4 servers of 12: 84/12 + 144/48 + 4 = 14 ms, so 6 cores of the worker
    # and 18/7 of a server are in use, 3/14 of what it has. 90 s: ceil(0.8 x 14/3) = 4 workers of 6
    # + 1 cores and 1.2 x 5 GB; a step takes 12 + 12 + 4 ms, a server uses 36/7 cores. 390 s:
    # servers of max(16, 6 + 4) cores for 20 workers: ceil(20/4 x 36/7 x 4/16) = 7, which hold 1.2 x
    # 28/7 GB each. They serve from 490 s and 50 s of pause on; 12 + 36/7 + 4 = 148/7 ms, 9/37 in
    # use. 690 s: ceil(4 x 0.8 x 37/9) = 14, which are more than were there, so all get ceil(7 x
    # 12/(148/7) + 1) = 5 cores: 16.8 + 18 + 4 = 38.8 ms. From then on 4 more every 300 s, as each
    # step has made the job faster, of the cores that the others have.
    cold, servers = JobResources(1, 12, 16, 4, 12, 16), (7, 16.0, 4.8)
    assert watch.of() == [
        (0, cold),
        (90, JobResources(4, 7, 6, 4, 12, 16)),
        (390, JobResources(4, 7, 6, *servers)),
        (690, JobResources(14, 5, 6, *servers)),
        (990, JobResources(18, 5, 6, *servers)),
        (1290, JobResources(22, 5, 6, *servers)),
        (1590, JobResources(26, 5, 6, *servers)),
    ]
    steps_ms = [
        (1, 14),
        (4, 28),
        (4, 148 / 7),
        (14, 38.8),
        (18, 16.8 + 162 / 7 + 4),
        (22, 16.8 + 198 / 7 + 4),
    ]
    done = sum(
        workers * 1e3 / step * ran_s
        for (workers, step), ran_s in zip(steps_ms, (90, 400, 150, 300, 300, 300), strict=True)
    )
    assert result.jobs.loc[0, "finish_s"] == pytest.approx(
        1590 + (500_000 - done) / 26 * (16.8 + 234 / 7 + 4) / 1e3
    )
    assert result.jobs.loc[0, "paused_s"] == 50


def test_a_short_job_gets_ten_workers() -> None:
    # A worker alone would need 100,000 x 14 ms less what is done, under 1,800 s.
    _, watch = run(toy(100_000))
    assert watch.of()[1] == (90, JobResources(10, 7, 6, 4, 12, 16))


def test_plans_keep_their_distance_and_looks_theirs() -> None:
    assert [at_s for at_s, _ in run(toy(500_000), "dlrover:plan_s=600")[1].of()][:3] == [0, 90, 690]
    assert [at_s for at_s, _ in run(toy(500_000), "dlrover:look_s=250")[1].of()][:3] == [0, 90, 390]
    # The plan of 190 s is carried out at 290 s and pauses until 340 s, so nothing is seen at 290 s.
    assert [at_s for at_s, _ in run(toy(500_000), "dlrover:look_s=70,plan_s=100")[1].of()][:4] == [
        0,
        90,
        190,
        360,
    ]


def test_without_a_history_the_limit_is_divided() -> None:
    result, watch = run(
        toy(500_000, server_mem_need_gb=6.0), "dlrover:brain=false,limit_cores=60,limit_gb=200"
    )
    # A fifth of the limit each: 84/12 + 144/12 + 4 = 23 ms; in use are 84/23 and 144/23 cores, 0.52
    # of what the server has. 90 s: int(0.9 x 23/12) = 1 worker is no more than now. 390 s: for
    # every worker 228/23 cores, so 60 x 23/228 workers leave 60 x 144/228 for ceil(37.9/12)
    # = 4 servers of 1.2 x 6/4 GB. 690 s: 84/12 + 144/48 + 4 = 14 ms, int(0.9 x 14/3) = 4 workers of
    # 6 cores, of which (60 - 48)/6 = 2 fit. 990 s: 14 + 6 + 4 = 24 ms; the second worker, on 6
    # cores, added a sixth of what the first did, so there are no more.
    assert watch.of() == [
        (0, JobResources(1, 12, 8, 1, 12, 8)),
        (390, JobResources(1, 12, 8, 4, 12, 1.8)),
        (690, JobResources(2, 6, 7.5, 4, 12, 1.8)),
    ]
    assert result.jobs.loc[0, "outcome"] == "completed"


def test_where_there_is_no_room_a_job_grows_less_and_later() -> None:
    # Beside the servers and the worker of 12 + 48 cores 20 are left; the plan frees the worker's: 4
    # of 7 cores fit into 32.
    trace = toy(
        500_000,
        submit_time_s=[0.0, 1.0],
        server_mem_need_gb=[28.0, 1.0],
        total_steps=[250_000.0, 1.0],
        worker_cpus=[4.0, 10.0],
        workers=[2.0, 1.0],
    )
    _, watch = run(trace, "dlrover", "1x0:cpu/80c/256g")
    assert watch.of()[:2] == [(0, COLD), (90, JobResources(4, 7, 6, 4, 12, 16))]
    _, watch = run(toy(500_000), "dlrover", "1x0:cpu/74c/256g")
    # 74 - 48 = 26 hold three. For the servers of the next plan, beside the old ones, there is no
    # room until the end.
    assert watch.of() == [(0, COLD), (90, JobResources(3, 7, 6, 4, 12, 16))]


def test_what_can_never_fit_is_left_as_the_user_asked() -> None:
    _, watch = run(toy(50_000), "dlrover", "2x0:cpu/16c/64g")
    assert watch.of()[0] == (0, JobResources(2, 4, 8, 1, 8, 40))


def test_only_jobs_with_servers_and_without_gpus_are_touched() -> None:
    trace = toy(50_000, num_gpus=[2, 0], servers=[1.0, 0.0])
    conditions = Conditions(ParameterServer(rows=TOY), overheads=COSTS)
    ours, theirs = (
        Simulator(trace, Cluster.parse("4x4:v100/64c/256g"), make(Spec(name)), conditions).run()
        for name in ("dlrover", "fifo")
    )
    pd.testing.assert_frame_equal(ours.segments, theirs.segments)
    pd.testing.assert_frame_equal(ours.placements, theirs.placements)


# -- the rules
# --------------------------------------------------------------------------------------------------

NOW = JobResources(10, 8, 10, 4, 16, 20)


def seen(
    server_cpus: float = 8,
    speed: float = 100,
    worker_cpus: float = 4,
    worker_gb: float = 6,
    server_gb: float = 10,
) -> list[Measurement]:
    return [Measurement(speed, worker_cpus, worker_gb, server_cpus, server_gb)]


@pytest.mark.parametrize(
    ("preset", "used", "before", "plans", "alone_s", "expected"),
    [
        ("code", 15.3, None, 5, LONG_S, 6),  # servers full: 4 fewer
        ("manifest", 15.3, None, 5, LONG_S, 10),
        ("manifest", 15.9, None, 5, LONG_S, 9),
        ("code", 14, None, 0, LONG_S, 10),  # neither full nor idle
        ("code", 4, None, 1, LONG_S, 32),  # ceil(10 x 0.8 x 16/4), at most 32 at first
        ("code", 4, None, 1, 1800, 10),
        ("code", 8, EarlierSpeed(5, 90), 2, LONG_S, 14),  # target 16, by 4
        ("manifest", 8, EarlierSpeed(5, 90), 2, LONG_S, 17),  # target 17, by 8
        ("code", 8, EarlierSpeed(5, 100), 2, LONG_S, 10),  # no faster than before
        ("code", 8, None, 2, LONG_S, 10),
        (
            "code",
            8,
            EarlierSpeed(5, 112),
            1,
            LONG_S,
            10,
        ),  # slower by a tenth, so not even the second plan grows
        ("manifest", 8, EarlierSpeed(5, 112), 1, LONG_S, 17),
        ("code", 0, None, 0, LONG_S, 10),
    ],
)
def test_workers(
    preset: str, used: float, before: EarlierSpeed | None, plans: int, alone_s: float, expected: int
) -> None:
    assert (
        more_workers(NOW, seen(used), before, plans, alone_s, PRESETS[preset]).workers == expected
    )


def test_limits_of_workers() -> None:
    assert (
        more_workers(
            NOW._replace(workers=58), seen(2), EarlierSpeed(50, 1), 9, LONG_S, CODE
        ).workers
        == 60
    )
    assert more_workers(NOW._replace(workers=2), seen(16), None, 9, LONG_S, CODE).workers == 1


def test_size_of_new_workers() -> None:
    few = NOW._replace(workers=2)
    # One core beyond the 4 in use and 1.2 x 6 GB; with the manifest none, and 1.6 x 6 GB, which is
    # less than 8 GB more than now.
    assert more_workers(few, seen(4), None, 0, LONG_S, CODE) == JobResources(7, 5, 7.2, 4, 16, 20)
    assert more_workers(few, seen(4), None, 0, LONG_S, PRESETS["manifest"]) == JobResources(
        7, 4, 9.6, 4, 16, 20
    )
    assert (
        more_workers(
            few._replace(worker_gb=2.0), seen(4, worker_gb=20), None, 0, LONG_S, CODE
        ).worker_gb
        == 10
    )
    assert (
        more_workers(
            few._replace(worker_gb=0.0), seen(4, worker_gb=20), None, 0, LONG_S, CODE
        ).worker_gb
        == 0
    )
    assert more_workers(NOW, seen(8), None, 0, LONG_S, CODE) == NOW._replace(workers=16)


def test_first_servers() -> None:
    # 14.5 + 4 cores; T = 20, and at most ceil(19/(14.5 x 4/15) x 10) = 50; ceil(20/10 x 14.5 x
    # 4/19) = 7 servers of 1.2 x 40/7 GB.
    assert first_servers(NOW, seen(14.5), LONG_S, 40, CODE) == JobResources(10, 8, 10, 7, 19, 6.9)
    # For 32 workers ceil(3.2 x 58/19) = 10; for 10 four.
    assert first_servers(NOW, seen(14.5), LONG_S, 40, PRESETS["manifest"]).servers == 10
    assert first_servers(NOW, seen(14.5), 1800, 40, CODE).servers == 4
    # No more workers than 15 servers can serve: ceil(32/(30 x 14/15) x 10) = 12, and ceil(1.2 x 30
    # x 14/32) = 16 is cut to 15.
    assert first_servers(NOW._replace(servers=14), seen(30), LONG_S, 40, CODE)[3:5] == (15, 32)
    # Memory for 640 GB takes ceil(1.2 x 640/64) = 12.
    assert first_servers(NOW, seen(4), LONG_S, 640, CODE)[3:] == (12, 16, 64)
    assert first_servers(NOW._replace(server_gb=0.0), seen(4), LONG_S, 640, CODE)[3:] == (2, 16, 0)


def test_hot_servers() -> None:
    # 13 of 16 cores are above 0.8: 32/10 as many for 32 workers, at most 32.
    assert hot_servers(NOW, seen(13), with_history=True) == NOW._replace(server_cpus=32)
    assert (
        hot_servers(NOW._replace(workers=25), seen(13), with_history=True).server_cpus == 17
    )  # ceil(13 x 1.28)
    assert hot_servers(NOW._replace(workers=40), seen(13), with_history=True) == NOW._replace(
        workers=40
    )
    assert hot_servers(NOW, seen(12.7), with_history=True) == NOW
    assert hot_servers(NOW, seen(13), with_history=False) == NOW
    assert (
        hot_servers(NOW._replace(workers=50), seen(14.5), with_history=False).server_cpus == 18
    )  # ceil(14.5 x 60/50)
    full = seen(4, server_gb=18.5)
    assert hot_servers(NOW, full * 3, with_history=True) == NOW._replace(server_gb=28)
    assert hot_servers(NOW, full * 2, with_history=True) == NOW
    assert hot_servers(NOW, [*seen(4), *full, *full], with_history=True) == NOW


def test_within_a_limit() -> None:
    # int(10 x 0.9 x 16/8) = 18 of 4 cores and 9 GB; the limit has (130 - 64)/4 = 16 by cores, (215
    # - 80)/9 = 15 by memory.
    assert workers_within(NOW, seen(8), None, (130, 999)) == NOW._replace(
        workers=16, worker_cpus=4, worker_gb=9
    )
    assert workers_within(NOW, seen(8), None, (130, 215)).workers == 15
    assert workers_within(NOW, seen(8), None, (999, 999)).workers == 18
    assert workers_within(NOW, seen(15.3), None, (999, 999)) == NOW
    assert workers_within(NOW, seen(8), None, (100, 999)) == NOW
    # From 5 to 10 workers: 20 each before, 4 and 3.8 for each of the others.
    assert workers_within(NOW, seen(8, speed=120), EarlierSpeed(5, 100), (999, 999)).workers == 18
    assert workers_within(NOW, seen(8, speed=119), EarlierSpeed(5, 100), (999, 999)) == NOW
    # A worker and its part of the servers use 4 + 3.2: 144/7.2 = 20 workers use 80, and leave 64 to
    # four servers.
    assert servers_within(NOW, seen(8), 144, 40)[3:] == (4, 16, 12)


def test_memory_that_ran_out() -> None:
    asked = NOW._replace(worker_gb=12, servers=20)
    assert after_oom(NOW, "worker", asked, watched=True) == NOW._replace(worker_gb=18)
    assert after_oom(NOW._replace(worker_gb=3), "worker", asked, watched=True).worker_gb == 11
    assert after_oom(NOW._replace(worker_gb=60), "worker", asked, watched=True).worker_gb == 64
    assert after_oom(NOW, "server", asked, watched=False) == NOW._replace(server_gb=40)
    assert after_oom(NOW, "server", asked, watched=True) == NOW._replace(servers=8)
    assert after_oom(NOW._replace(server_gb=64), "server", asked, watched=False) == NOW._replace(
        server_gb=64, servers=8
    )
    assert after_oom(NOW._replace(servers=12), "server", asked, watched=True) == NOW._replace(
        servers=12, server_gb=40
    )
    assert after_oom(
        NOW._replace(servers=12, server_gb=64), "server", asked, watched=True
    ) == NOW._replace(servers=20, server_gb=64)


def test_half_of_it() -> None:
    assert halve_resources(JobResources(3, 20, 16, 2, 6, 10)) == JobResources(3, 10, 8, 2, 4, 6)
    assert halve_resources(JobResources(3, 2, 3, 2, 4, 0)) == JobResources(3, 2, 3, 2, 4, 0)


def test_memory_at_the_end() -> None:
    assert final_gb((100, 10), (80, 12)) == 20
    assert final_gb((100, 10), (100, 10)) == final_gb((100, 10), (80, 10)) == 10


def test_major_cluster() -> None:
    assert central_mean([1, 10, 11, 12, 50]) == 11
    assert central_mean([4]) == 4


def test_history() -> None:
    history = History(days=7)
    assert history.first(0, 0.0) == COLD
    watched = Watched(
        seen(6, worker_cpus=13, worker_gb=14, server_gb=9) + seen(10, worker_cpus=11, server_gb=12),
        [3, 4],
    )
    past = watched.past(1000.0)
    assert past == FinishedJob(
        1000, 18, 8, 12, 48, 13, 14
    )  # of 18 and 40 cores the one nearest to the median, which is the first
    history.add(0, past)
    history.add(0, past._replace(finish_s=2000, all_cpus=100, server_cpus=20, all_gb=30))
    # 20 + 4 cores; 1.5 x 18 in all, so ceil(27/24) = 2 of 1.2 x max(12, 48/2) GB; a worker of 13
    # cores and 1.5 x 14 GB.
    assert history.first(0, 1000 + 7 * 86_400.0) == JobResources(1, 13, 21, 2, 24, 28.8)
    assert history.first(1, 3000.0) == COLD
    # Of the later one alone: 1.5 x 100 cores, ceil(150/24) = 7.
    assert history.first(0, 1001 + 7 * 86_400.0)[3:] == (7, 24, 14.4)
    assert history.first(0, 2001 + 7 * 86_400.0) == COLD
    history.add(2, past._replace(all_cpus=300, server_cpus=20, all_gb=900))
    assert history.first(2, 1000.0)[3:] == (
        15,
        30,
        64,
    )  # 450/15 cores; 72 GB each would be too much


# -- what happens
# --------------------------------------------------------------------------------------------------


def test_the_next_of_its_kind_begins_with_what_the_first_was_seen_to_use() -> None:
    trace = toy(50_000, submit_time_s=[0.0, 2000.0, 2000.0], name=["ads", "ads", "feed"])
    _, watch = run(trace)
    # The first was seen only once, at 90 s, for with ten workers it was done after 290 s: 6 cores
    # and 5 GB of its worker, 18/7 cores and 28/4 GB of each of 4 servers. So the next has servers
    # of 3 + 4 cores, ceil(1.5 x 72/7 / 7) of them, and 1.2 x 28/3 GB for each.
    assert watch.of(0)[0] == (0, COLD)
    assert watch.of(1)[0] == (2000, JobResources(1, 12, 16, 3, 7, 11.2))
    assert watch.of(2)[0] == (2000, COLD)


def test_without_an_entry_a_job_is_like_no_other() -> None:
    _, watch = run(toy(50_000, submit_time_s=[0.0, 2000.0, 4000.0], name=["", "", "ads"]))
    assert watch.of(1)[0] == (2000, COLD)


def test_what_failed_teaches_nothing() -> None:
    trace = toy(50_000, submit_time_s=[0.0, 2000.0], server_mem_growth_gb=[5000.0, 0.0])
    _, watch = run(trace, faults=Faults(retries=0))
    assert watch.of(1)[0] == (2000, COLD)


def test_servers_that_run_out_of_memory_come_back_with_more() -> None:
    result, watch = run(toy(50_000, server_mem_need_gb=100.0, server_mem_gb=120.0))
    # 4 x 16 GB are too few at once, 4 x 32 are enough.
    assert watch.of()[:2] == [(0, COLD), (0, COLD._replace(server_gb=32))]
    assert result.jobs.loc[0, ["outcome", "evictions"]].tolist() == ["completed", 1]


def test_what_a_user_asked_for_is_kept_but_for_memory() -> None:
    result, watch = run(
        toy(50_000, worker_mem_need_gb=12.0, server_mem_need_gb=20.0, server_mem_growth_gb=60.0),
        "dlrover:resize=false",
    )
    # Workers get 8 GB more at once; servers were not looked at before, so their memory doubles, up
    # to 64 GB, when 40 are used up.
    assert watch.of()[:2] == [
        (0, JobResources(2, 4, 8, 1, 8, 40)),
        (0, JobResources(2, 4, 16, 1, 8, 40)),
    ]
    assert watch.of()[2][1] == JobResources(2, 4, 16, 2, 8, 40)
    assert result.jobs.loc[0, "outcome"] == "completed"


def test_who_waits_for_long_asks_for_less() -> None:
    # Job 0 holds twice 42/5 of 42 cores, and job 1 would begin with twice 80/5; after 900 s it asks
    # for half of the cores, and for 6 of 8 GB, and starts.
    trace = toy(
        400_000,
        submit_time_s=[0.0, 0.0],
        worker_cpus=[17.0, 40.0],
        server_cpus=[8.0, 40.0],
        workers=[2.0, 1.0],
    )
    _, watch = run(trace, "dlrover:brain=false,look_s=1e6", "1x0:cpu/42c/256g")
    assert watch.of(1)[0] == (900, JobResources(1, 8, 6, 1, 8, 6))


def test_a_slow_worker_moves_at_the_second_look() -> None:
    # Workers are on nodes 0 and 1, the server on node 2, which alone has 8 cores left then.
    result, watch = run(
        toy(50_000),
        "dlrover:resize=false,inner=fifo(placement=spread),placement=spread",
        "6x0:cpu/8c/64g",
        slow="0:0:inf:0.5",
    )
    assert [at_s for at_s, _ in watch.of()] == [0, 150]
    first, second = (
        set(result.placements.loc[result.placements["segment"] == at, "node"]) for at in (0, 1)
    )
    assert 0 in first
    assert 0 not in second
    # 84/4 + 144 x 2/8 + 4 = 61 ms; one worker at half speed: 1.5 x 1000/61 in the first 150 s.
    assert result.jobs.loc[0, "finish_s"] == pytest.approx(
        150 + (50_000 - 150 * 1500 / 61) * 61 / 2000
    )
    assert result.jobs.loc[0, "paused_s"] == 0
    kept, watch = run(
        toy(50_000),
        "dlrover:resize=false,inner=fifo(placement=spread),slow=0",
        "6x0:cpu/8c/64g",
        slow="0:0:inf:0.5",
    )
    assert len(watch.of()) == 1
    assert kept.jobs.loc[0, "finish_s"] == pytest.approx(50_000 * 61 / 1500)


@pytest.mark.parametrize(
    ("migration", "runs_on_s", "pause_s"), [("seamless", 100, 50), ("stop_and_go", 0, 400)]
)
def test_a_slow_server_is_replaced(migration: str, runs_on_s: float, pause_s: float) -> None:
    # On node 2: 21 + 36/0.5 + 4 = 97 ms until 150 s, and as long as it serves on; then 61 ms.
    spec = (
        f"dlrover:resize=false,inner=fifo(placement=spread),placement=spread,migration={migration}"
    )
    result, _ = run(toy(50_000), spec, "6x0:cpu/8c/64g", slow="2:0:inf:0.5")
    slow_s = 150 + runs_on_s
    assert result.jobs.loc[0, "finish_s"] == pytest.approx(
        slow_s + pause_s + (50_000 - slow_s * 2000 / 97) * 61 / 2000
    )


def test_a_slow_replica_leaves_a_node_that_is_never_full() -> None:
    # Cores and memory of these nodes are unlimited.
    result, watch = run(toy(50_000), "dlrover:resize=false", "2x4:v100", slow="0:0:inf:0.5")
    assert [at_s for at_s, _ in watch.of()] == [0, 150]
    assert [
        set(result.placements.loc[result.placements["segment"] == at, "node"])
        for at in (0, result.placements["segment"].max())
    ] == [{0}, {1}]


@pytest.mark.parametrize("cluster", ["1x4:v100", "1x0:cpu/64c/256g", "1x4:v100,1x0:cpu/4c/9g"])
def test_without_a_better_node_nothing_moves_and_it_is_rarely_tried(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, rebuild = [], Rebuild.__call__

    def counted(self: Rebuild, view: View, *what: Any, **how: Any) -> Grant | None:
        tried.append(view.now_s)
        return rebuild(self, view, *what, **how)

    monkeypatch.setattr(Rebuild, "__call__", counted)
    result, watch = run(toy(200_000), "dlrover:resize=false", cluster, slow="0:0:inf:0.5")
    assert len(watch.of()) == 1
    assert tried[0] == 150
    assert 2 <= len(tried) <= 1 + result.end_s / 3600
    assert min(after - before for before, after in pairwise(tried)) >= 3600


def test_without_a_better_node_plans_go_on() -> None:
    result, watch = run(toy(200_000), "dlrover", "1x4:v100", slow="0:0:inf:0.5")
    assert watch.of()[0] == (0, COLD)
    assert watch.of()[1][0] == 450  # after the two looks for which a slow replica is looked at
    assert watch.of()[1][1].workers > 1
    assert result.jobs.loc[0, "outcome"] == "completed"


def test_without_shards_the_slowest_is_waited_for_and_interruptions_hit_the_job() -> None:
    spec = "dlrover:resize=false,sharding=false,slow=0,inner=fifo(placement=spread)"
    result, _ = run(toy(50_000), spec, "6x0:cpu/8c/64g", slow="0:0:inf:0.5")
    assert result.jobs.loc[0, "finish_s"] == pytest.approx(50_000 * 61 / 1000)
    interrupted = Faults(interruptions_per_node_h=1.0)
    for sharding, evicted in ((True, False), (False, True)):
        result, _ = run(
            toy(50_000),
            f"dlrover:resize=false,sharding={str(sharding).lower()},inner=fifo(placement=spread)",
            faults=interrupted,
        )
        assert (result.jobs.loc[0, "evictions"] > 0) == evicted
        assert (result.jobs.loc[0, "relaunches"] > 0) != evicted


def test_new_servers_without_room_for_a_worker_take_nothing() -> None:
    # 24 cores; the job holds two workers of 4 and a server of 8. A second server takes the 8 that
    # are free, so no third worker fits.
    class Grows(Fifo):
        def allocate(self, view: View, /) -> Plan:
            for job, held in view.grants.items():
                demand = view.demand(job)
                servers = replace(demand.servers, replicas=2)
                wanted = replace(demand, replicas=3, servers=servers)
                found.append(
                    (
                        rebuild(view, held, wanted, (), beside=True),
                        view.room.replicas_that_fit(0, servers),
                    )
                )
            return super().allocate(view)

    rebuild = Rebuild(Placer("fewest", "fastest", mix=False))
    found = list[tuple[Grant | None, int]]()
    two = toy(2000, submit_time_s=[0.0, 10.0])
    Simulator(
        two, Cluster.parse("1x0:cpu/24c/256g"), Grows(), Conditions(ParameterServer(rows=TOY))
    ).run()
    assert found == [(None, 1)]


def test_a_job_that_must_not_be_changed_is_not() -> None:
    result, watch = run(toy(50_000, preemptible=0.0))
    assert [config for _, config in watch.of()] == [COLD]
    assert result.jobs.loc[0, "outcome"] == "completed"


def test_who_resizes_jobs_cannot_be_inside() -> None:
    for inner in ("optimus", "dlrover", "partition(inner=optimus)"):
        with pytest.raises(ParameterError, match="resizes jobs itself"):
            make(Spec.parse(f"dlrover(inner={inner})"))
    with pytest.raises(ParameterError, match="not built yet"):
        _ = DLRover().needs

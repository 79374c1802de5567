"""Cores and memory of jobs with parameter servers: what they really use, and what an allocator is
told of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocators import make
from allocators.parameter_server.scaling_rules import COLD, estimated_resources
from jobtraces.generate import workload
from sim.cluster import Cluster
from sim.contract import Floats, Gang, Grant, Part, Resources, Spec
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.perf import ESTIMATORS
from sim.perf.estimators import Biased, EstimatorSpec, Exact, Noisy, Unknown
from sim.perf.parameter_server import ParameterServer, ParameterServerModel
from sim.perf.predictors import PerUser
from sim.perf.regression import Boosting, Forest
from sim.perf.resources import BoundResources
from sim.perf.rigid import Rigid
from sim.result import RunResult
from sim.trace import Trace

# A step of one sample takes 84 core-ms on a worker, 144 core-ms on the servers for every worker,
# and 4 ms.
TOY = "toy cpu 84 0 0 144 0 0 4 2"
CLUSTER = Cluster.parse("10x0:cpu/64c/256g")
LEARNING = (PerUser, Forest, Boosting)


def toy(count: int, **columns: Any) -> Trace:
    """Jobs of two workers of 4 cores and a server of 8, one every 2,000 s, of one sample per worker
    and step.
    """
    row = {
        "submit_time_s": np.arange(count) * 2000.0,
        "num_gpus": 0,
        "duration_s": 1.0,
        "model": "toy",
        "user": "ann",
        "batch_size": 2.0,
    }
    row |= {
        "total_steps": 25_000.0,
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
    }
    return Trace.of(pd.DataFrame(row | columns).assign(job_id=[f"j{at}" for at in range(count)]))


def model_of(trace: Trace) -> ParameterServerModel:
    return ParameterServer(rows=TOY).bind(trace, CLUSTER)


def bound(of: EstimatorSpec, trace: Trace, seed: int = 0) -> BoundResources:
    return of.bind_resources(model_of(trace), trace, seed)


def run(
    trace: Trace, spec: str, estimator: EstimatorSpec | None = None, cluster: Cluster = CLUSTER
) -> RunResult:
    conditions = Conditions(
        ParameterServer(rows=TOY), estimator or Exact(), faults=Faults(retries=10), seed=3
    )
    return Simulator(trace, cluster, make(Spec.parse(spec)), conditions).run()


def first_server_gb(result: RunResult) -> list[float]:
    """GB of a server of each job when it first began."""
    servers = result.placements[result.placements["role"] == 1]
    return (
        servers.assign(job=result.segments["job"].to_numpy()[servers["segment"]])
        .groupby("job")["mem_gb"]
        .first()
        .tolist()
    )


# -- the truth
# --------------------------------------------------------------------------------------------------


def test_what_jobs_use_by_hand() -> None:
    columns = {
        "server_mem_growth_gb": [0.0, 6.0, 0.0, 0.0],
        "servers": [1.0, 2.0, 0.0, 1.0],
        "workers": [2.0, 2.0, 1.0, 2.0],
    }
    columns |= {
        "worker_mem_need_gb": [5.0, 5.0, 5.0, np.nan],
        "server_mem_need_gb": [28.0, 28.0, 28.0, np.nan],
    }
    found = model_of(toy(4, **columns)).resources()
    # 84/4 + 144 x workers / (servers x 8) + 4: 21 + 36 + 4 = 61 ms, 21 + 18 + 4 = 43 ms, and 21 + 4
    # = 25 ms of a worker without servers.
    expected = [
        [4 * 21 / 61, 5, 8 * 36 / 61, 28],
        [4 * 21 / 43, 5, 8 * 18 / 43, 17],
        [4 * 21 / 25, 5, 0, 0],
        [4 * 21 / 61, 8, 8 * 36 / 61, 40],
    ]
    assert found == pytest.approx(np.array(expected))


def test_it_is_what_a_monitor_sees_at_the_end_of_a_job_that_has_what_it_asks_for() -> None:
    trace = toy(1, server_mem_growth_gb=6.0)
    model = model_of(trace)
    grant = Grant((Gang(Part((0,), (2,), 0, 4.0, 8.0), Part((1,), (1,), 0, 8.0, 40.0)),))
    seen = model.telemetry(0, grant, float(model.work()[0]), 0.0)
    assert model.resources()[0].tolist() == pytest.approx(
        [seen.cpus["worker"], seen.mem_gb["worker"], seen.cpus["server"], seen.mem_gb["server"]]
    )


# -- told
# --------------------------------------------------------------------------------------------------


def test_told_truly_with_noise_with_a_bias_or_not_at_all() -> None:
    trace = toy(2000)
    true = model_of(trace).resources()
    assert bound(Exact(), trace).estimate(7) == Resources(*true[7].tolist())
    assert bound(Biased(3.0), trace).estimate(7) == pytest.approx(3 * true[7])
    assert bound(Unknown(), trace).estimate(7) is None
    noisy = bound(Noisy(0.5), trace)
    logs = np.log(np.array([noisy.estimate(job) for job in range(2000)]) / true)
    assert np.median(logs, axis=0) == pytest.approx(np.zeros(4), abs=0.05)
    assert logs.std(axis=0) == pytest.approx(np.full(4, 0.5), abs=0.03)
    assert np.abs(np.corrcoef(logs.T) - np.eye(4)).max() < 0.1
    assert (
        noisy.estimate(7)
        == noisy.estimate(7)
        == bound(Noisy(0.5), trace).estimate(7)
        != bound(Noisy(0.5), trace, seed=1).estimate(7)
    )
    assert bound(Noisy(0.0), trace).estimate(7) == pytest.approx(true[7])


@pytest.mark.parametrize("of", ESTIMATORS.values())
def test_under_a_model_that_does_not_know_nothing_is_told(of: type[EstimatorSpec]) -> None:
    trace = toy(3, num_gpus=1)
    estimator = of().bind_resources(Rigid().bind(trace, Cluster.parse("1x8:v100")), trace, 0)
    estimator.observe(0)
    assert estimator.estimate(1) is None


# -- learnt
# --------------------------------------------------------------------------------------------------


def test_the_median_of_a_user_by_hand() -> None:
    users = ["ann", "ann", "bob", "ann", "ann", "bob", "eve"]
    trace = toy(
        7,
        user=users,
        worker_mem_need_gb=[1.0, 4.0, 100.0, 9.0, 1.0, 1.0, 1.0],
        server_mem_need_gb=[10.0, 40.0, 80.0, 20.0, 1.0, 1.0, 1.0],
    )
    estimator, cores = bound(PerUser(least=2), trace), model_of(trace).resources()[0, ::2].tolist()
    assert estimator.estimate(4) is None
    for job in range(4):
        estimator.observe(job)
    # Ann's workers took 1, 4 and 9 GB, her servers 10, 40 and 20. Bob has finished one job only and
    # Eve none: the middles of 1, 4, 9, 100 and of 10, 20, 40, 80 are the geometric means of 4 and
    # 9, and of 20 and 40. All use the same cores.
    assert estimator.estimate(4) == pytest.approx((cores[0], 4, cores[1], 20))
    assert (
        estimator.estimate(5)
        == estimator.estimate(6)
        == pytest.approx((cores[0], 6, cores[1], 800**0.5))
    )


def test_jobs_without_servers_teach_nothing_of_servers() -> None:
    estimator = bound(PerUser(), toy(4, servers=[0.0, 1.0, 0.0, 1.0], workers=1.0))
    estimator.observe(0)
    assert estimator.estimate(1) is None
    told = estimator.estimate(2)
    assert told is not None
    assert told[1:] == pytest.approx((5, 0, 0))
    estimator.observe(1)
    told = estimator.estimate(3)
    assert told is not None
    assert told.server_gb == pytest.approx(28)


def recurring(jobs: int = 200, groups: int = 8) -> Trace:
    """Runs of groups, each of one name and one need of memory; all of two users."""
    group = np.random.default_rng(5).integers(0, groups, jobs)
    columns = {
        "name": [f"scenario-{at}" for at in group],
        "user": [f"user-{at % 2}" for at in group],
    }
    return toy(
        jobs, **columns, server_mem_need_gb=2.0 + 5.0 * group, worker_mem_need_gb=1.0 + 0.5 * group
    )


def gb(estimator: BoundResources, ids: range) -> Floats:
    return np.array(
        [told.server_gb if (told := estimator.estimate(job)) is not None else np.nan for job in ids]
    )


@pytest.mark.slow
def test_trees_find_the_groups_and_medians_do_not() -> None:
    trace = recurring()
    true = model_of(trace).resources()[150:, 3]
    off = {}
    for of in LEARNING:
        estimator = bound(of(), trace)
        for job in range(150):
            estimator.observe(job)
        off[of] = float(np.median(np.abs(np.log(gb(estimator, range(150, 200)) / true))))
    assert max(off[Forest], off[Boosting]) < 0.05
    assert off[PerUser] > 0.3


def test_trees_are_medians_until_enough_has_finished_and_read_what_is_asked_for() -> None:
    # Nothing but the request tells the jobs apart.
    asked = np.random.default_rng(1).choice([10.0, 20.0, 40.0], 60)
    trace = toy(60, server_mem_gb=asked, server_mem_need_gb=asked / 2)
    trees, medians = bound(Boosting(least=40), trace), bound(PerUser(), trace)
    for job in range(39):
        trees.observe(job)
        medians.observe(job)
        assert trees.estimate(59) == medians.estimate(59)
    trees.observe(39)
    assert gb(trees, range(40, 60)) == pytest.approx(asked[40:] / 2, rel=0.02)


@pytest.mark.parametrize("of", LEARNING)
def test_nothing_is_learnt_from_jobs_that_have_not_finished(
    of: type[PerUser | Forest | Boosting],
) -> None:
    one = recurring(60)
    frame = one.frame.copy()
    frame.loc[30:, ["worker_mem_need_gb", "server_mem_need_gb"]] *= 3.0
    other = Trace.of(frame)
    estimators = [bound(of(), one), bound(of(), other)]
    for job in range(30):
        for estimator in estimators:
            estimator.observe(job)
    assert [estimators[0].estimate(job) for job in range(30, 60)] == [
        estimators[1].estimate(job) for job in range(30, 60)
    ]
    for job in range(30, 60):
        for estimator in estimators:
            estimator.observe(job)
    assert estimators[0].estimate(31) != estimators[1].estimate(31)


def test_nobody_learns_where_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    taught: list[int] = []
    monkeypatch.setattr(
        "sim.perf.resources.LearnedResources.observe", lambda _, job: taught.append(job)
    )
    run(toy(3), "dlrover", PerUser())
    assert not taught
    run(toy(3), "dlrover:first_sizes=estimate", PerUser())
    assert taught == [0, 1, 2]


# -- asked for
# --------------------------------------------------------------------------------------------------


def test_what_a_job_begins_with_that_is_believed_to_use_so_much() -> None:
    assert estimated_resources(None, 3) == COLD
    # 1.5 x 3 x 5 cores on servers of 5 + 4: 2.5, so 3 of them, with 1.2 x 20 GB. A worker gets 14
    # cores, and 1.5 x 12 GB.
    assert tuple(estimated_resources(Resources(13.5, 12.0, 5.0, 20.0), 3)) == (1, 14, 18, 3, 9, 24)


def test_a_job_begins_with_what_those_that_finished_before_have_used() -> None:
    # What the user of the first asked for would have used 8 x 36/61 = 4.7 cores and 28 GB of one
    # server. 1.5 x 4.7 are within 5 + 4, so the next get one, too.
    result = run(
        toy(3, submit_time_s=[0.0, 2000.0, 2000.0], name="ads"),
        "dlrover:first_sizes=estimate",
        PerUser(),
    )
    assert first_server_gb(result) == [16, 33.6, 33.6]
    assert first_server_gb(run(toy(3), "dlrover:first_sizes=estimate", Unknown())) == [16, 16, 16]


def test_told_exactly_no_job_runs_out_of_memory_whatever_its_user_asks_for() -> None:
    # Requests are too low, and beyond what the first of a kind gets, too: 4 x 16 GB for all
    # servers.
    need = np.array([70.0, 100.0, 150.0, 90.0])
    trace = toy(
        4, servers=4.0, server_mem_need_gb=need, server_mem_gb=need / 8, server_mem_growth_gb=40.0
    )
    own, told = run(trace, "dlrover"), run(trace, "dlrover:first_sizes=estimate")
    assert (own.failures["cause"] == "oom").any()
    assert len(told.failures) == 0
    assert (told.jobs["outcome"] == "completed").all()


@pytest.mark.slow
@pytest.mark.parametrize("of", [Exact(), Noisy(), PerUser(), Boosting(least=10, rounds=20)])
def test_runs_can_be_repeated_and_say_how_near_it_was(of: EstimatorSpec) -> None:
    made = workload(Spec.parse("dlrover:jobs=40,scenarios=8,load=0.1"))
    one, other = (
        run(made.make(), "dlrover:first_sizes=estimate", of, made.machines()) for _ in range(2)
    )
    pd.testing.assert_frame_equal(one.jobs, other.jobs)
    pd.testing.assert_frame_equal(one.segments, other.segments)
    assert one.remarks == other.remarks
    assert (one.remarks == ()) == (of == Exact())


def test_the_remark_by_hand() -> None:
    # The first is told nothing; the second, that it uses 28 GB of servers, the third the geometric
    # mean of 28 and 7.
    trace = toy(3, server_mem_need_gb=[28.0, 7.0, 14.0], worker_mem_need_gb=[2.0, 8.0, 4.0])
    assert run(trace, "dlrover:first_sizes=estimate", PerUser()).remarks == (
        (
            "First estimates of the cores and memory of 2 jobs, against what they use: half of"
            " them are within a factor of 1.00 for cores of workers, 2.00 for their GB, 1.00 for"
            " cores"
            " of servers, 2.00 for their GB."
        ),
    )

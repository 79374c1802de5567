"""Workers and parameter servers: step times by hand, published run times, stragglers, memory, and
what is refused or assumed.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from math import exp, inf, nan, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators.queue.fifo import Fifo
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.engine.faults import Faults
from sim.errors import ContractError, ParameterError
from sim.grants import Gang, Grant, Part, Shape, Tuning
from sim.overheads import Overheads
from sim.params import Spec, build, spec_of
from sim.perf.model import Rate, Staffed, Using
from sim.perf.parameter_server import ParameterServer, ParameterServerModel
from sim.perf.steps import ROWS, ModelRow
from sim.trace import Trace
from tests.counting import count_steps
from tests.shared import shared
from tests.sim.scripted import Script, gantt, jobs, run

# Nodes 0 and 1 carry 8 GPUs each, the second of a type twice as fast; nodes 2 to 31 carry none.
CLUSTER = Cluster(
    (NodeGroup(1, 8, "mid"), NodeGroup(1, 8, "fast"), NodeGroup(30, 0)),
    (GpuType("mid", 1.0), GpuType("fast", 2.0)),
)
# On a GPU 10 ms a sample and 40 ms a step; exchange 100 ms, 20 ms a worker, 5 ms a server; 16
# samples.
NET = ParameterServer(rows="net gpu 10 40 100 0 20 5 0 16")
SAMPLES = 45.84e6 * 10


def gang(workers: Part, servers: Part | None = None, *, sharding: bool = False) -> Grant:
    return Grant((Gang(workers, servers),), Tuning(sharding=sharding))


def serving(count: int, cores: float = 5.0, mem_gb: float = 0.0, node: int = 31) -> Part:
    return Part((node,), (count,), 0, cores, mem_gb)


def each_on_its_own(count: int, cores: float, first: int = 2) -> Part:
    return Part(tuple(range(first, first + count)), (1,) * count, 0, cores)


def bound(trace: Trace, spec: ParameterServer = NET) -> ParameterServerModel:
    return spec.bind(trace, CLUSTER)


def one(*, gpus: int = 2, model: str = "net", duration: float = 100.0, **columns: Any) -> Trace:
    return jobs(
        (0, gpus, duration), model=[model], **{name: [value] for name, value in columns.items()}
    )


def seconds(
    row: ModelRow,
    samples: float,
    workers: float,
    servers: float,
    cores: tuple[float, float],
    speed: float = 0.0,
    kappa: float = 4.0,
) -> float:
    """Return the time of a step, written down once more without arrays; cores of a worker and of a
    server; speed 0 = CPU workers.
    """
    a, b, d = row.efficiency
    relative = (a * exp(-b * cores[1]) + d) / (a * exp(-b * 5) + d)
    in_gpus = (row.sample_s * samples + row.step_s) / (8 * kappa if row.on_cpus else 1)
    compute = in_gpus / speed if speed else in_gpus * 8 * kappa / cores[0]
    exchange = workers / servers * (row.exchange_s / relative + row.update_s * samples / cores[1])
    return (
        compute + exchange + row.worker_s * workers + row.server_s * servers + row.input_s * samples
    )


# -- step times
# --------------------------------------------------------------------------------------------------


def test_a_step_by_hand() -> None:
    truth = bound(one(servers=1))
    # Two workers of 8 samples: 80 + 40, 2 x 100, 2 x 20 and 5 ms.
    assert truth.rate(0, gang(Part((0,), (2,)), serving(1)), 0, 0)[1:] == Rate(0.0)[1:]
    assert truth.rate(0, gang(Part((0,), (2,)), serving(1)), 0, 0).work_per_s == pytest.approx(
        16 / 0.365
    )
    # Twice as fast a type halves the 120 ms, two servers halve the 200.
    assert truth.rate(0, gang(Part((1,), (2,)), serving(1)), 0, 0).work_per_s == pytest.approx(
        16 / 0.305
    )
    assert truth.rate(0, gang(Part((0,), (2,)), serving(2)), 0, 0).work_per_s == pytest.approx(
        16 / 0.270
    )
    # The slower of two types paces a gang that spans both.
    assert truth.rate(0, gang(Part((0, 1), (1, 1)), serving(1)), 0, 0).work_per_s == pytest.approx(
        16 / 0.365
    )
    # Two CPU workers of 8 cores take 4 times the 120 ms, of 16 cores twice.
    assert truth.rate(
        0, gang(Part((2,), (2,), 0, 8.0), serving(1)), 0, 0
    ).work_per_s == pytest.approx(16 / 0.725)
    assert truth.rate(
        0, gang(Part((2,), (2,), 0, 16.0), serving(1)), 0, 0
    ).work_per_s == pytest.approx(16 / 0.485)
    assert truth.work() == pytest.approx([100 * 16 / 0.365])


def test_workers_of_several_gpus_divide_their_samples() -> None:
    truth = bound(one(gpus=4, workers=2, servers=1))
    assert truth.roles().workers.tolist() == [2]
    # 8 samples of a worker on two GPUs: 40 + 40 ms.
    assert truth.rate(0, gang(Part((0,), (2,), 2), serving(1)), 0, 0).work_per_s == pytest.approx(
        16 / 0.325
    )
    assert truth.rates(np.array([0]), [Shape((4, 0)), Shape((3, 0)), Shape((2, 0))])[
        0
    ].tolist() == [pytest.approx(16 / 0.325), 0, pytest.approx(16 / 0.245)]
    assert truth.limits().min_gpus.tolist() == [2]


def test_jobs_without_servers() -> None:
    truth = bound(one(servers=0))
    # One worker exchanges nothing: 160 + 40 + 20 ms. Two serve one another: 80 + 40 + 100 + 40.
    assert truth.rate(0, gang(Part((0,), (1,))), 0, 0).work_per_s == pytest.approx(16 / 0.22)
    assert truth.rate(0, gang(Part((0,), (2,))), 0, 0).work_per_s == pytest.approx(16 / 0.26)
    assert truth.rates(np.array([0]), [Shape((1, 0)), Shape((2, 0))])[0] == pytest.approx(
        [16 / 0.22, 16 / 0.26]
    )


def test_servers_gain_little_from_many_cores() -> None:
    a, b, d = ROWS["resnet50"].efficiency
    truth = bound(one(model="ResNet-50", servers=2))

    def exchange(cores: float) -> float:
        speed = truth.rate(0, gang(Part((0,), (2,)), serving(2, cores)), 0, 0).work_per_s
        return 64 / speed - (0.006 * 32 + 0.03 + 2 * 0.01 + 2 * 0.005)

    at_five = a * exp(-5 * b) + d
    assert exchange(5) == pytest.approx(0.10)
    assert exchange(1) == pytest.approx(0.10 * at_five / (a * exp(-b) + d))
    assert exchange(0.5) == pytest.approx(2 * exchange(1))
    assert exchange(64) == pytest.approx(0.10 * at_five / d)
    assert exchange(4) / exchange(64) < 1.001


@given(
    model=st.sampled_from(sorted(ROWS)),
    workers=st.integers(1, 12),
    servers=st.integers(1, 8),
    asked=st.integers(1, 8),
    cores=st.tuples(st.floats(1, 40), st.floats(1, 40)),
    kind=st.sampled_from(["mid", "fast", "cpu"]),
)
def test_truth_estimator_and_hand_agree(
    model: str, workers: int, servers: int, asked: int, cores: tuple[float, float], kind: str
) -> None:
    row, speed = ROWS[model], {"mid": 1.0, "fast": 2.0, "cpu": 0.0}[kind]
    spec = ParameterServer(cores_per_worker=cores[0], grow=64)
    truth = spec.bind(
        one(gpus=asked, model=model, worker_cpus=1.0, servers=2, server_cpus=cores[1]), CLUSTER
    )
    samples = row.batch if row.asynchronous else row.batch / workers
    expected = workers * samples / seconds(row, samples, workers, servers, cores, speed)
    at = {"mid": 0, "fast": 1, "cpu": 2}[kind]
    part = Part((at,), (workers,), 0 if kind == "cpu" else 1, cores[0])
    assert truth.rate(0, gang(part, serving(servers, cores[1])), 0, 0).work_per_s == pytest.approx(
        expected, rel=1e-9
    )
    shape = (
        Shape((0, 0), 1, servers, "cpu", workers=workers)
        if kind == "cpu"
        else Shape((workers, 0) if kind == "mid" else (0, workers), servers=servers)
    )
    assert truth.rates(np.array([0]), [shape])[0, 0] == pytest.approx(expected, rel=1e-9)


def test_shapes_that_say_nothing_are_what_the_job_asks_for() -> None:
    truth = bound(
        jobs(
            (0, 2, 10),
            (0, 0, 10),
            model=["net"] * 2,
            workers=[2, 3],
            servers=[1, 2],
            worker_cpus=[nan, 16.0],
        )
    )
    shapes = [
        Shape((2, 0)),
        Shape((0, 0), kind="cpu"),
        Shape((0, 0)),
        Shape((0, 0), kind="cpu", workers=1, servers=1),
    ]
    rates = truth.rates(np.array([0, 1]), shapes)
    # The second has three CPU workers of 16 cores: 2 x (160 / 3 + 40), 150, 60 and 10 ms.
    third = 16 / (2 * (0.16 / 3 + 0.04) + 0.15 + 0.06 + 0.01)
    assert rates[0] == pytest.approx([16 / 0.365, 16 / 0.725, 0, 16 / (0.8 + 0.1 + 0.02 + 0.005)])
    assert rates[1] == pytest.approx([0, third, third, 16 / (0.4 + 0.1 + 0.02 + 0.005)])
    assert truth.work()[1] == pytest.approx(10 * third)
    assert truth.rates(np.array([1, 0]), []).shape == (2, 0)


def test_the_row_of_dlrover_reproduces_the_figure_it_was_fitted_to() -> None:
    (fit,) = csv.DictReader(
        shared("data/dlrover_coefficients.csv").read_text(encoding="utf-8").splitlines()
    )
    panels = {
        name: dict(zip(("worker_cpu", "ps_cpu", "workers", "ps"), given, strict=True))
        for name, given in json.loads(fit["panel_settings_lw_lp_w_p"]).items()
    }
    errors = []
    for point in csv.DictReader(
        shared("data/dlrover_figure_points.csv").read_text(encoding="utf-8").splitlines()
    ):
        at = panels[point["panel"]] | {
            point["x_variable"]: float(point["x"]),
            point["curve_variable"]: float(point["curve_value"]),
        }
        truth = bound(one(gpus=0, model="dlrover", workers=at["workers"], servers=at["ps"]))
        grant = gang(
            Part((2,), (int(at["workers"]),), 0, at["worker_cpu"]),
            serving(int(at["ps"]), at["ps_cpu"]),
        )
        # The error of the fit is that of the time per sample.
        errors.append(
            float(point["throughput_samples_per_s"]) / truth.rate(0, grant, 0, 0).work_per_s - 1
        )
    assert len(errors) == 132
    assert sqrt(np.mean(np.square(errors))) == pytest.approx(
        float(fit["rms_relative_error"]), abs=0.0006
    )


# -- published run times
# --------------------------------------------------------------------------------------------------


def wide_deep(slow: str = "", *, sharding: bool = False, start_s: float = 0.0) -> float:
    """Return the minutes that 24 workers of 3 cores and 8 servers of 16 take for 10 epochs of
    Criteo.
    """
    columns = {
        "workers": 24,
        "servers": 8,
        "worker_cpus": 3.0,
        "server_cpus": 16.0,
        "batch_size": 512.0 * 24,
        "total_steps": SAMPLES / 512 / 24,
    }
    grant = gang(
        each_on_its_own(24, 3.0), Part(tuple(range(2, 10)), (1,) * 8, 0, 16.0), sharding=sharding
    )
    return minutes(one(gpus=0, model="wide_deep", **columns), grant, slow, start_s)


def xdeepfm(slow: str = "", *, sharding: bool = False) -> float:
    """Return the minutes that 8 workers of 20 cores and 2 servers of 16 take for the same."""
    columns = {
        "workers": 8,
        "servers": 2,
        "worker_cpus": 20.0,
        "server_cpus": 16.0,
        "batch_size": 512.0 * 8,
        "total_steps": SAMPLES / 512 / 8,
    }
    grant = gang(each_on_its_own(8, 20.0), Part((20, 21), (1, 1), 0, 16.0), sharding=sharding)
    return minutes(one(gpus=0, model="xDeepFM", **columns), grant, slow, 0.0)


def minutes(trace: Trace, grant: Grant, slow: str, start_s: float) -> float:
    role = "server" if slow.startswith("server ") else "worker"
    perf = ParameterServer(slow=slow.removeprefix("server "), slow_role=role)
    result = run(trace, CLUSTER, Script({0.0: {0: grant}}), Overheads(start_s=start_s), perf=perf)
    return float(result.jobs["finish_s"].iloc[0]) / 60


def test_wide_and_deep_healthy_with_a_slow_worker_and_with_a_slow_server() -> None:
    assert wide_deep() == pytest.approx(27, abs=0.1)
    assert wide_deep(sharding=True) == pytest.approx(27, abs=0.1)
    # One worker of 24 at 0.587: data divided beforehand waits for it, shards flow around it.
    assert wide_deep("5:0:inf:0.587") == pytest.approx(46, abs=0.1)
    assert wide_deep("5:0:inf:0.587", sharding=True) == pytest.approx(27 * 24 / 23.587, abs=0.1)
    # The two to four minutes that DLRover took beside this are overheads.
    assert 30 <= wide_deep("5:0:inf:0.587", sharding=True, start_s=180) <= 32
    # A server at a tenth of its speed: the exchange, 18.6 % of a step, takes ten times as long.
    # Shards do not help.
    assert wide_deep("server 3:0:inf:0.1") == pytest.approx(27 * 2.67, rel=0.01)
    assert wide_deep("server 3:0:inf:0.1", sharding=True) == pytest.approx(72, abs=0.5)


def test_xdeepfm_healthy_with_a_slow_worker_and_with_a_slow_server() -> None:
    assert xdeepfm() == pytest.approx(104, abs=0.1)
    assert xdeepfm("4:0:inf:0.433") == pytest.approx(240, abs=0.5)
    assert xdeepfm("4:0:inf:0.433", sharding=True) == pytest.approx(111.9, abs=0.2)
    assert xdeepfm("server 20:0:inf:0.292") == pytest.approx(203, abs=1)


def test_deepfm_from_one_worker_to_four() -> None:
    truth = bound(
        one(gpus=0, model="deepfm", workers=1, servers=1, worker_cpus=3.0, server_cpus=3.0)
    )
    speeds = [
        truth.rate(0, gang(Part((2,), (count,), 0, 3.0), serving(1, 3.0)), 0, 0).work_per_s / 512
        for count in (1, 4)
    ]
    assert speeds == pytest.approx([30, 100], rel=1e-4)


# -- stragglers
# --------------------------------------------------------------------------------------------------


def test_synchronous_workers_wait_whatever_the_data_do() -> None:
    truth = bound(one(servers=1), ParameterServer(rows=NET.rows, slow="1:0:inf:0.5"))
    for sharding in (False, True):
        assert truth.rate(
            0, gang(Part((0, 1), (1, 1)), serving(1), sharding=sharding), 0, 0
        ).work_per_s == pytest.approx(16 / max(0.365, 0.305 / 0.5))


def test_asynchronous_workers_add_up_only_with_shards() -> None:
    truth = bound(
        one(servers=1, asynchronous=1), ParameterServer(rows=NET.rows, slow="1:0:inf:0.5")
    )
    grant = gang(Part((0, 1), (2, 1)), serving(1))
    # Each keeps its 8 samples. Three workers: 300 and 60 ms instead of 200 and 40; the slow node's
    # GPU is of the fast type.
    healthy, slow = 0.12 + 0.3 + 0.06 + 0.005, (0.06 + 0.3 + 0.06 + 0.005) / 0.5
    assert truth.rate(0, grant, 0, 0).work_per_s == pytest.approx(3 * 8 / slow)
    assert truth.rate(
        0, replace(grant, tuning=Tuning(sharding=True)), 0, 0
    ).work_per_s == pytest.approx(2 * 8 / healthy + 8 / slow)


def test_roles_and_times_of_stragglers() -> None:
    grant = gang(Part((0,), (2,)), serving(1))
    as_worker = ParameterServer(
        rows=NET.rows, slow="31:0:inf:0.5; 0:10:20:0.5;0:15:40:0.25", slow_role="worker"
    )
    truth = bound(one(servers=1), as_worker)
    assert [truth.rate(0, grant, 0, now).until_s for now in (0, 10, 15, 20, 40)] == [
        10,
        15,
        20,
        40,
        inf,
    ]
    paces = [
        truth.rate(0, grant, 0, now).work_per_s * 0.365 / 16
        for now in (0, 10, 14.9, 15, 20, 39, 40)
    ]
    assert paces == pytest.approx([1, 0.5, 0.5, 0.25, 0.25, 0.25, 1])
    as_server = bound(
        one(servers=1),
        ParameterServer(rows=NET.rows, slow="31:0:inf:0.5;0:0:inf:0.1", slow_role="server"),
    )
    assert as_server.rate(0, grant, 0, 0).work_per_s == pytest.approx(16 / 0.565)
    both = bound(one(servers=1), ParameterServer(rows=NET.rows, slow="31:0:inf:0.5;0:0:inf:0.1"))
    assert both.rate(0, grant, 0, 0).work_per_s == pytest.approx(16 / 5.65)
    # The slowest server holds up all.
    two = replace(grant, gangs=(Gang(Part((0,), (2,)), Part((30, 31), (1, 1), 0, 5.0)),))
    assert as_server.rate(0, two, 0, 0).work_per_s == pytest.approx(16 / 0.37)


def test_a_straggler_in_the_middle_of_a_run() -> None:
    # 100 s healthy; at half speed from 40 to 100 s: 40 + 30 done by then, 30 left.
    perf = ParameterServer(rows=NET.rows, slow="0:40:100:0.5")
    grant = gang(Part((0,), (2,)), serving(1))
    result = run(one(servers=1), CLUSTER, Script({0.0: {0: grant}}), perf=perf)
    assert result.jobs["finish_s"].tolist() == pytest.approx([130])
    # Moved away at 60 s, it is healthy again: 40 + 10 done by then.
    moved = gang(Part((1,), (2,)), serving(1))
    script = Script({0.0: {0: grant}, 60.0: {0: moved}})
    assert run(one(servers=1), CLUSTER, script, perf=perf).jobs[
        "finish_s"
    ].tolist() == pytest.approx([60 + 50 * 0.305 / 0.365])


# -- memory
# --------------------------------------------------------------------------------------------------

HUNGRY: dict[str, Any] = {
    "servers": 1,
    "worker_mem_need_gb": 10.0,
    "server_mem_need_gb": 20.0,
    "server_mem_growth_gb": 40.0,
}


def holding(worker_gb: float, server_gb: float, servers: int = 1) -> Grant:
    return gang(Part((0,), (2,), 1, 1.0, worker_gb), serving(servers, 5.0, server_gb))


def test_when_memory_runs_out() -> None:
    truth = bound(one(**HUNGRY))
    work = float(truth.work()[0])

    def until(grant: Grant, done: float = 0.0) -> tuple[float, str, str]:
        speed, until_work, until_s, then, role = truth.rate(0, grant, done, 0)
        assert (speed > 0, until_s) == (True, inf)
        return until_work, then, role

    assert (
        until(holding(0, 0), 5)[:2]
        == until(holding(10, 60))[:2]
        == until(holding(10, 30, 2))[:2]
        == (inf, "ask")
    )
    # A worker at once, also when it is tried again; before the servers.
    assert until(holding(9.9, 30)) == (0.0, "oom", "worker")
    assert until(holding(9.9, 30), 50.0) == (50.0, "oom", "worker")
    # Servers at 20 + 40 x share: 50 GB are full at three quarters, and so are two of 25 GB.
    assert until(holding(10, 50))[1:] == until(holding(10, 25, 2))[1:] == ("oom", "server")
    assert until(holding(10, 50))[0] == pytest.approx(0.75 * work)
    assert until(holding(10, 25, 2))[0] == pytest.approx(0.75 * work)
    assert until(holding(10, 19)) == (0.0, "oom", "server")
    assert bound(one(servers=1, worker_mem_need_gb=nan)).rate(0, holding(1, 1), 0, 0).then == "ask"


def test_out_of_memory_in_a_run() -> None:
    faults = Faults(retries=0)
    result = run(
        one(**HUNGRY), CLUSTER, Script({0.0: {0: holding(10, 50)}}), faults=faults, perf=NET
    )
    assert gantt(result) == [f"j0 0-75 n0x2 n31x1 rate {16 / 0.365:g} evicted"]
    assert result.jobs["outcome"].tolist() == ["failed"]
    result = run(
        one(**HUNGRY),
        CLUSTER,
        Script({0.0: {0: holding(9, 50)}}),
        Overheads(start_s=7),
        faults,
        perf=NET,
    )
    assert result.segments[["t0", "t1"]].to_numpy().tolist() == [[0, 7]]


@pytest.mark.parametrize(
    ("slow", "full_s"),
    [("0:40:inf:0.5", 40 + 35 / 0.5), ("0:90:inf:0.5", 75.0), ("0:40:60:0.5", 85.0)],
)
def test_memory_that_runs_out_while_a_straggler_comes_and_goes(slow: str, full_s: float) -> None:
    perf = ParameterServer(rows=NET.rows, slow=slow, slow_role="worker")
    result = run(
        one(**HUNGRY),
        CLUSTER,
        Script({0.0: {0: holding(10, 50)}}),
        faults=Faults(retries=0),
        perf=perf,
    )
    assert result.segments["t1"].max() == pytest.approx(full_s)
    assert result.jobs[["outcome", "evictions"]].to_numpy().tolist() == [["failed", 1]]


def test_jobs_that_never_have_enough_memory_end_the_run_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sim.engine.simulator.MAX_EVICTIONS", 10)
    small = Cluster((NodeGroup(2, 0, cpus=32, mem_gb=64),))
    trace = jobs((0, 0, 10), (0, 0, 10), worker_mem_gb=[4, 4], worker_mem_need_gb=[3, 5])
    with pytest.raises(ParameterError) as caught:
        run(trace, small, Fifo(), perf=ParameterServer())
    assert (
        str(caught.value)
        == "Job j1 was evicted 11 times, at last for lack of memory: it asks for less than it"
        " needs. Correct its columns of memory, limit retries, or choose a policy that gives"
        " more after a failure."
    )
    result = run(trace, small, Fifo(), faults=Faults(retries=3), perf=ParameterServer())
    assert result.jobs[["outcome", "evictions"]].to_numpy().tolist() == [
        ["completed", 0],
        ["failed", 4],
    ]


# -- what is used
# --------------------------------------------------------------------------------------------------


def test_use_by_hand() -> None:
    truth = bound(one(**HUNGRY))
    assert isinstance(truth, Staffed)
    assert isinstance(truth, Using)
    grant, half = holding(16, 100, 2), truth.work()[0] / 2
    # A step of 270 ms: 120 of compute on one core, 100 of exchange on 5 cores.
    cpus, mem_gb, speed = truth.telemetry(0, grant, half, 0)
    assert cpus == pytest.approx({"worker": 0.12 / 0.27, "server": 5 * 0.1 / 0.27})
    assert mem_gb == pytest.approx({"worker": 10, "server": 20})
    assert speed == {"worker": (1.0, 1.0), "server": (1.0, 1.0)}
    worker, server = truth.usage(0, grant, (0.0, half), 0)
    assert worker._asdict() == pytest.approx(
        {"role": "worker", "cpus": 2 * 0.12 / 0.27, "mem_gb": 20}
    )
    assert server._asdict() == pytest.approx(
        {"role": "server", "cpus": 2 * 5 * 0.1 / 0.27, "mem_gb": 20 + 40 / 4}
    )
    # Nobody says what is needed: a monitor sees all that is held, but nothing is known.
    untold = bound(one(servers=1))
    assert np.isnan(untold.usage(0, grant, (0, 1), 0)[1].mem_gb)
    assert untold.telemetry(0, grant, 0.5, 0).mem_gb["server"] == 100


def test_servers_use_in_proportion_to_the_samples() -> None:
    truth = bound(one(gpus=0, model="dlrover", workers=10, servers=4))
    for count in (1, 5, 20):
        grant = gang(each_on_its_own(count, 8.0), serving(4, 12.0))
        samples_per_s = truth.rate(0, grant, 0, 0).work_per_s
        worker, server = truth.usage(0, grant, (0, 1), 0)
        assert worker.cpus == pytest.approx(1.38516e-4 * samples_per_s)
        # 9.1e-5 core-seconds for every sample, times the workers per server.
        assert server.cpus == pytest.approx(9.10857e-5 * samples_per_s)


def test_what_a_monitor_sees_of_stragglers() -> None:
    slow = ParameterServer(rows=NET.rows, slow="0:0:inf:0.5;30:0:inf:0.25")
    truth = bound(one(servers=2, asynchronous=1), slow)
    grant = Grant(
        (Gang(Part((0, 1), (1, 2), 1, 1.0), Part((30, 31), (1, 1), 0, 5.0)),), Tuning(sharding=True)
    )
    seen = truth.telemetry(0, grant, 0, 0)
    assert seen.speed == {"worker": (0.5, 1.0, 1.0), "server": (0.25, 1.0)}
    # The exchange of 150 ms takes 600; the busiest server works all that time.
    assert seen.cpus["server"] == pytest.approx(5 * 0.6 / (0.12 + 0.6 + 0.06 + 0.01))


# -- what jobs ask for
# --------------------------------------------------------------------------------------------------


def test_what_jobs_are_made_of_where_the_trace_says_nothing() -> None:
    trace = jobs(
        (0, 4, 10),
        (0, 0, 10),
        (0, 0, 10),
        (0, 0, 10),
        cpus=[nan, nan, 20, 0.5],
        mem_gb=[64, nan, 30, nan],
    )
    roles = bound(trace, ParameterServer(servers_per_worker=0.5)).roles()
    assert roles.workers.tolist() == [4, 1, 3, 1]
    assert roles.servers.tolist() == [2, 1, 2, 1]
    assert roles.worker_cpus.tolist() == [1, 8, 20 / 3, 0.5]
    assert roles.worker_mem_gb.tolist() == [16, 0, 10, 0]
    assert roles.server_cpus.tolist() == [5, 5, 5, 5]
    assert roles.server_mem_gb.tolist() == [0, 0, 0, 0]
    assert not any(column.flags.writeable for column in roles)


def test_columns_of_the_trace_come_first() -> None:
    columns: dict[str, Any] = {
        "workers": 3,
        "servers": 2,
        "worker_cpus": 4,
        "server_cpus": 6,
        "worker_mem_gb": 7,
        "server_mem_gb": 8,
        "cpus": 99,
        "mem_gb": 99,
    }
    assert [column[0] for column in bound(one(gpus=0, **columns)).roles()] == [3, 2, 4, 7, 6, 8]
    # Seven GPUs cannot be divided among three workers.
    assert bound(one(gpus=7, workers=3)).roles().workers.tolist() == [7]


def test_work_is_samples() -> None:
    trace = jobs(
        (0, 2, 10),
        (0, 2, 10),
        (0, 0, 10),
        model=["net", "net", "dlrover"],
        total_steps=[50, 50, 50],
        batch_size=[nan, 32, nan],
        workers=[2, 2, 4],
    )
    assert bound(trace).work().tolist() == [50 * 16, 50 * 32, 50 * 4 * 512]
    typed = jobs((0, 2, 10), model=["net"], gpu_type=["fast"], servers=[1])
    assert bound(typed).work() == pytest.approx([10 * 16 / 0.305])
    # On the overflow node of the recorded schedule it runs as it was recorded, and nobody measures.
    recorded = gang(Part((32,), (2,), 1, 3.0, 4.0), serving(1, node=32))
    assert bound(typed).rate(0, recorded, 0, 0).work_per_s == pytest.approx(16 / 0.305)
    assert bound(typed).telemetry(0, recorded, 0, 0) == (
        {"worker": 3.0},
        {"worker": 4.0},
        {"worker": (1.0, 1.0)},
    )
    assert bound(typed).usage(0, recorded, (0, 1), 0) == ()


def test_copies_of_a_job_add_up() -> None:
    truth = bound(one(servers=1))
    both = Grant((Gang(Part((0,), (2,)), serving(1)), Gang(Part((1,), (2,)), serving(1))))
    assert truth.rate(0, both, 0, 0).work_per_s == pytest.approx(
        (16 / 0.365 + 16 / 0.305) * 0.95 * 355 / 360
    )
    assert [used.role for used in truth.usage(0, both, (0, 1), 0)] == ["worker", "server"] * 2


def test_limits_and_the_best_size() -> None:
    truth = bound(
        jobs(
            (0, 2, 10),
            (0, 0, 10),
            (0, 4, 10),
            model=["net"] * 3,
            servers=[1, 1, 0],
            workers=[nan, 2, nan],
            min_gpus=[nan, nan, 3],
        )
    )
    assert truth.limits().min_gpus.tolist() == [1, 0, 3]
    assert truth.limits().max_gpus.tolist() == [8, 0, 8]
    row = ModelRow(False, 0.01, 0.04, 0.1, 0.0, 0.02, 0.005, 0.0, 16)
    sizes = [(workers, servers) for workers in range(1, 9) for servers in range(1, 40)]
    assert truth.fastest()[0] == pytest.approx(
        max(
            16 / seconds(row, 16 / workers, workers, servers, (1, 5), 2.0)
            for workers, servers in sizes
        )
    )
    assert truth.fastest()[1] == pytest.approx(
        max(16 / seconds(row, 16 / workers, workers, servers, (8, 5)) for workers, servers in sizes)
    )
    # Where connections cost nothing, the limit is a step without any exchange.
    free = bound(one(gpus=0, model="dlrover", workers=2, worker_cpus=4.0, servers=1))
    assert free.fastest()[0] == pytest.approx(8 / (1.38516e-4 / 4 + 2.84016e-5))
    assert truth.fastest()[2] == pytest.approx(
        max(
            16 / ((0.16 / count + 0.04) / 2 + (count > 1) * 0.1 + 0.02 * count)
            for count in range(1, 9)
        )
    )


def test_what_is_assumed_is_said() -> None:
    said = ParameterServer().assumptions(
        jobs(
            (0, 2, 10),
            (0, 3, 10),
            (0, 0, 10),
            model=["vgg", "bert", "dlrover"],
            workers=[nan, 2, 4],
            servers=[nan, 1, 1],
        )
    )
    assert said == (
        (
            "2 of 2 GPU jobs do not say on how many GPUs they may run; assumed: 0 to 4 times what"
            " they asked for (shrink, grow)."
        ),
        (
            "1 of 3 jobs have a model without a row of step times; assumed: that of 'resnet50'"
            " (stand_in, rows)."
        ),
        (
            "1 of 3 jobs do not state their workers; assumed: one for every GPU, or for every 8"
            " cores of a CPU job."
        ),
        (
            "1 of 3 jobs do not state their parameter servers; assumed: 1 for every worker, rounded"
            " up (servers_per_worker)."
        ),
        (
            "3 of 3 jobs do not state the cores of workers or servers; assumed: 1 for a GPU worker,"
            " 8 for a CPU worker, 5 for a server."
        ),
        (
            "3 of 3 jobs do not state total_steps; their samples follow from the duration and the"
            " computed speed of what they ask for."
        ),
        (
            "3 of 3 jobs do not state how much memory they need (worker_mem_need_gb,"
            " server_mem_need_gb); assumed: what they ask for is enough."
        ),
        (
            "1 of 3 jobs have GPUs that cannot be divided among their workers; assumed: one worker"
            " for every GPU."
        ),
        "Step times are computed from rows of coefficients, not measured (--perf).",
    )
    complete = {
        "servers": 1,
        "workers": 1,
        "worker_cpus": 1,
        "server_cpus": 1,
        "total_steps": 5,
        "worker_mem_need_gb": 1,
    }
    assert ParameterServer().assumptions(one(gpus=0, model="dlrover", **complete)) == said[-1:]


def test_a_trace_without_cores_on_a_cluster_without_gpus() -> None:
    trace = jobs((0, 0, 100), (0, 0, 50), (0, 1, 10))
    result = run(
        trace,
        Cluster.parse("2x0:cpu"),
        Script({0.0: {at: gang(Part((0,), (1,), 0, 8.0), serving(1, node=1)) for at in (0, 1)}}),
        perf=ParameterServer(),
    )
    assert result.jobs["finish_s"].tolist()[:2] == pytest.approx([100, 50])
    assert result.jobs["outcome"].tolist() == ["completed", "completed", "impossible"]


def test_jobs_that_no_node_can_hold_are_impossible_role_by_role() -> None:
    cluster = Cluster((NodeGroup(2, 0, cpus=32, mem_gb=64),))
    columns = {
        "worker_mem_gb": [65, 1, 1, 1, 1],
        "server_mem_gb": [1, 65, 1, 1, 1],
        "worker_cpus": [4, 4, 33, 4, 4],
        "server_cpus": [4, 4, 4, 33, 4],
    }
    trace = jobs(*[(0, 0, 10)] * 5, workers=[2] * 5, servers=[1] * 5, **columns)
    result = run(trace, cluster, Fifo(), perf=ParameterServer())
    assert result.jobs["outcome"].tolist() == ["impossible"] * 4 + ["completed"]
    assert result.jobs["finish_s"].iloc[4] == pytest.approx(10)


# -- what is refused
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (
            {"gpus": 0, "worker_cpus": 0.0},
            (
                "parameter_server: job j0 (model net) asks for CPU workers of 0 cores each."
                " Correct worker_cpus, or leave it empty for 8 cores; the same holds for 1 of 1"
                " jobs."
            ),
        ),
        (
            {"servers": 1, "server_cpus": 0.0},
            (
                "parameter_server: job j0 (model net) asks for parameter servers of 0 cores each."
                " Correct server_cpus, or leave it "
            ),
        ),
        (
            {"servers": 1.5},
            (
                "parameter_server: job j0 (model net) asks for parts of workers or servers."
                " Correct both columns to whole numbers; the same holds for"
            ),
        ),
        (
            {"model": "bert"},
            (
                "parameter_server: job j0 (model bert) has no row, and stand_in is empty. Add its"
                " model to rows, or name a stand_in; the same"
            ),
        ),
    ],
)
def test_jobs_that_cannot_be_are_refused_before_the_run(
    columns: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        bound(one(**columns), ParameterServer(rows=NET.rows, stand_in=""))
    assert str(caught.value).startswith(sentence)
    # Zero cores are fine where nobody runs on them.
    assert bound(one(worker_cpus=0.0, servers=0, server_cpus=0.0)).rate(
        0, gang(Part((0,), (2,))), 0, 0
    ).work_per_s == pytest.approx(16 / 0.26)


@pytest.mark.parametrize(
    ("slow", "sentence"),
    [
        (
            "3:600",
            (
                "parameter_server, slow: '3:600' is not of the form node:from_s:to_s:speed, e.g."
                " 3:600:inf:0.5."
            ),
        ),
        ("3:x:9:0.5", "parameter_server, slow: '3:x:9:0.5' is not of the form"),
        ("1.5:0:9:0.5", "parameter_server, slow: '1.5:0:9:0.5' is not of the form"),
        ("inf:0:9:0.5", "parameter_server, slow: 'inf:0:9:0.5' is not of the form"),
        (
            "3:9:9:0.5",
            (
                "parameter_server, slow: '3:9:9:0.5' must begin at 0 s or later and end after it"
                " began; inf = never."
            ),
        ),
        ("3:-1:9:0.5", "parameter_server, slow: '3:-1:9:0.5' must begin at 0 s or later"),
        (
            "3:0:9:0",
            (
                "parameter_server, slow: '3:0:9:0' has speed 0; a straggler runs at a speed above 0"
                " and up to 1. For a node that stops, set an outage."
            ),
        ),
        ("3:0:9:1.5", "parameter_server, slow: '3:0:9:1.5' has speed 1.5; a straggler"),
        ("3:0:9:-0.5", "parameter_server, slow: '3:0:9:-0.5' has speed -0.5; a straggler"),
        (
            "32:0:9:0.5",
            "parameter_server, slow: there is no node 32; the nodes are 0 to 31. Name one of them.",
        ),
        ("-1:0:9:0.5", "parameter_server, slow: there is no node -1;"),
    ],
)
def test_impossible_stragglers_are_refused(slow: str, sentence: str) -> None:
    with pytest.raises(ParameterError) as caught:
        bound(one(), ParameterServer(rows=NET.rows, slow=slow))
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            "bert gpu 1 2 3",
            (
                "parameter_server, rows: 'bert gpu 1 2 3' is not of the form 'name gpu|cpu"
                " sample_ms step_ms exchange_ms update_ms"
            ),
        ),
        ("bert", "parameter_server, rows: 'bert ' is not of the form"),
        (
            "bert tpu 1 2 3 4 5 6 7 8",
            "parameter_server, rows: 'bert tpu 1 2 3 4 5 6 7 8' is not of the form",
        ),
        (
            "bert gpu 1 2 3 x 5 6 7 8",
            "parameter_server, rows: 'bert gpu 1 2 3 x 5 6 7 8' is not of the form",
        ),
        (
            "bert gpu 1 2 -3 4 5 6 7 8",
            (
                "parameter_server, rows: bert has a negative time, a step that takes no time, or a"
                " batch below 1. Correct it."
            ),
        ),
        ("bert gpu 0 0 3 4 5 6 7 8", "parameter_server, rows: bert has a negative time"),
        ("bert gpu 1 2 3 4 5 6 7 0", "parameter_server, rows: bert has a negative time"),
    ],
)
def test_rows_that_make_no_sense_are_refused(rows: str, sentence: str) -> None:
    with pytest.raises(ParameterError) as caught:
        ParameterServer(rows=rows)
    assert str(caught.value).startswith(sentence)


def test_a_stand_in_must_be_there() -> None:
    with pytest.raises(
        ParameterError,
        match=r"parameter_server: stand_in: there is no row 'bert'\. There are: vgg, ",
    ):
        ParameterServer(stand_in="bert")
    assert ParameterServer(stand_in="Wide-Deep").stand_in == "Wide-Deep"
    with pytest.raises(
        ParameterError, match="parameter_server: the cluster has no GPU type 'h100'"
    ):
        bound(one(), ParameterServer(reference="h100"))


def test_grants_that_no_such_job_can_hold() -> None:
    truth = bound(one(gpus=4, servers=1, min_gpus=2))
    for grant, why in (
        (gang(Part((0,), (1,)), serving(1)), "job 0 runs on 2 GPUs or more and cannot run on 1"),
        (gang(Part((0,), (2,))), "job 0 asks for 1 parameter servers and cannot run without any"),
        (
            gang(Part((2,), (2,), 0, 0.0), serving(1)),
            "job 0 has CPU workers or parameter servers without cores",
        ),
        (
            gang(Part((0,), (2,)), serving(1, 0.0)),
            "job 0 has CPU workers or parameter servers without cores",
        ),
    ):
        with pytest.raises(ContractError, match=why):
            truth.rate(0, grant, 0, 0)


def test_parameters_survive_text_and_json() -> None:
    spec = ParameterServer(
        rows="My-Net cpu 0.1 0 0 0.09 0 0 0.03 512; vgg gpu 1 2 3 4 5 6 7 8",
        slow="3:600:inf:0.5;4:0:9.5:0.1",
        slow_role="server",
        kappa=2.0,
    )
    written = spec_of("parameter_server", spec)
    assert build(ParameterServer, Spec.parse(str(written))) == spec
    assert build(ParameterServer, Spec.from_json(written.to_json())) == spec
    # A row on CPUs is asynchronous, and its batch that of one worker.
    assert bound(one(gpus=0, model="mynet", workers=4, total_steps=3), spec).work().tolist() == [
        3 * 4 * 512
    ]


def test_a_thousand_jobs_at_all_sizes_take_as_many_steps_as_ten() -> None:
    rng = np.random.default_rng(3)
    names = sorted(ROWS)
    rows = [(0.0, int(rng.integers(1, 5)), float(rng.integers(10, 1000))) for _ in range(1000)]
    trace = jobs(
        *rows,
        model=[names[at] for at in rng.integers(0, len(names), 1000)],
        servers=rng.integers(1, 4, 1000).tolist(),
    )
    truth = ParameterServer().bind(trace, CLUSTER)
    shapes = [
        Shape((workers, 0), servers=servers) for workers in range(1, 17) for servers in range(1, 11)
    ]
    ten, thousand = (
        count_steps(lambda count=count: truth.rates(np.arange(count), shapes))
        for count in (10, 1000)
    )
    assert thousand == ten


@pytest.mark.parametrize("role", ["both", "worker", "server"])
def test_servers_on_several_nodes_are_seen_one_by_one_whoever_is_slow(role: str) -> None:
    trace = jobs((0, 0, 100.0), workers=[2], servers=[2], model=["dlrover"])
    model = ParameterServer(slow="1:0:inf:0.5", slow_role=role).bind(
        trace, Cluster.parse("3x0:cpu/64c")
    )
    grant = Grant((Gang(Part((0,), (2,), 0, 8.0), Part((1, 2), (1, 1), 0, 5.0)),))
    assert model.telemetry(0, grant, 0.0, 0.0).speed["server"] == (
        (1.0, 1.0) if role == "worker" else (0.5, 1.0)
    )

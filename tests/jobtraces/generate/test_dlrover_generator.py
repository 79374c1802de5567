"""Workloads after DLRover: sizes, work, needs and requests as declared, and single jobs that take
the published times.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from allocators.queue.fifo import Fifo
from jobtraces.generate import canonical, workload
from jobtraces.generate.dlrover import BATCH, MODELS, SHARES, DLRoverWorkload
from sim.engine.faults import Faults
from sim.engine.simulator import Conditions, Simulator
from sim.errors import ParameterError
from sim.perf.parameter_server import ParameterServer
from sim.perf.steps import ROWS
from sim.result import RunResult

MANY = 20_000
ALONE = f"jobs={MANY},scenarios=200000"
"""So many scenarios that hardly any has two jobs."""
PER_REPLICA = ["worker_cpus", "server_cpus", "worker_mem_gb", "server_mem_gb"]
NEEDS = ["worker_mem_need_gb", "server_mem_need_gb", "server_mem_growth_gb"]


def made(text: str) -> pd.DataFrame:
    return workload(f"dlrover:{text}" if text else "dlrover").make().frame


def run(text: str, **perf: str) -> RunResult:
    chosen = workload(text)
    conditions = Conditions(perf=ParameterServer(**perf), faults=Faults(retries=3))  # type: ignore[arg-type]
    return Simulator(chosen.make(), chosen.machines(), Fifo(placement="spread"), conditions).run()


@pytest.fixture(scope="module")
def wrong() -> pd.DataFrame:
    return made(ALONE)


@pytest.fixture(scope="module")
def right() -> pd.DataFrame:
    return made(f"{ALONE},wrong=no")


def test_nodes_per_job_are_log_uniform(wrong: pd.DataFrame) -> None:
    nodes = wrong["workers"] + wrong["servers"]
    assert nodes.between(3, 150).all()
    for low, high in ((3, 10), (11, 30), (31, 50), (51, 100), (101, 150)):
        share = math.log((high + 1) / low) / math.log(151 / 3)
        assert nodes.between(low, high).mean() == pytest.approx(
            share, abs=4 * math.sqrt(share / MANY)
        )
    assert (wrong["servers"] >= 1).all()
    # A quarter are servers, up to half a server.
    assert (abs(wrong["servers"] - nodes / 4) <= 0.5).all()


@pytest.mark.parametrize("grows", [0, 1])
def test_work_of_a_single_worker(grows: float) -> None:
    frame = made(f"{ALONE},wrong=no,grows={grows}")
    log = np.log(frame["duration_s"] * frame["workers"] / 3600)
    spread = math.hypot(0.8, 0.25, grows * np.log(frame["workers"]).std())
    assert math.exp(log.median()) == pytest.approx(
        40, rel=5 * 1.25 * spread / math.sqrt(MANY) + 0.02
    )
    assert log.std() == pytest.approx(spread, rel=0.02)
    assert np.corrcoef(np.log(frame["duration_s"]), np.log(frame["workers"]))[
        0, 1
    ] == pytest.approx(0 if grows else -0.8, abs=0.05)


def test_models_are_the_points_of_a_lognormal(wrong: pd.DataFrame) -> None:
    shares = wrong["model"].value_counts(normalize=True)
    weights = np.array(SHARES) / sum(SHARES)
    for name, weight in zip(MODELS, weights, strict=True):
        assert shares.get(name, 0.0) == pytest.approx(weight, abs=4 * math.sqrt(weight / MANY))
    logs = {
        name: math.log(ROWS[name.replace("-", "")].update_s / ROWS["dlrover"].update_s)
        for name in MODELS
    }
    drawn = wrong["model"].astype(str).map(logs)
    assert drawn.mean() == pytest.approx(0, abs=4 * 0.4 / math.sqrt(MANY))
    assert drawn.std() == pytest.approx(0.4, rel=0.02)
    assert (drawn**4).mean() / drawn.var() ** 2 == pytest.approx(3, abs=0.1)


def test_right_requests_are_the_needs(right: pd.DataFrame) -> None:
    assert (right["worker_mem_gb"] - right["worker_mem_need_gb"]).between(-1e-3, 0.1).all()
    spare = (
        right["server_mem_gb"]
        - (right["server_mem_need_gb"] + right["server_mem_growth_gb"]) / right["servers"]
    )
    assert spare.between(-1e-9, 0.1).all()
    fit = right[right["model"] == "dlrover-111"]
    # Busy 35 % of a time per sample of 28.4 us / (1 - 2 * 0.35): 4.2 cores; servers have 2.75 for
    # each worker.
    assert set(fit["worker_cpus"]) == {4.2}
    assert (fit["server_cpus"] - 2.7491 * fit["workers"] / fit["servers"]).between(-1e-3, 0.1).all()


def test_wrong_requests_are_as_declared(wrong: pd.DataFrame, right: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(
        wrong[[*NEEDS, "workers", "servers", "total_steps", "submit_time_s"]],
        right[[*NEEDS, "workers", "servers", "total_steps", "submit_time_s"]],
    )
    factor = wrong[PER_REPLICA] / right[PER_REPLICA]
    little = factor < 1
    for columns, share in (
        ("worker_cpus", 0.25 * 0.75),
        ("worker_mem_gb", 0.25 * 0.125),
        ("server_mem_gb", 0.25 * 0.125),
    ):
        assert little[columns].mean() == pytest.approx(share, abs=4 * math.sqrt(share / MANY))
        lacking = factor.loc[little[columns], columns]
        assert lacking.between(0.3, 0.9).all()
        assert lacking.mean() == pytest.approx(0.6, abs=4 * 0.6 / math.sqrt(12 * len(lacking)))
    assert (little["worker_cpus"] == little["server_cpus"]).all()
    assert little[["worker_cpus", "worker_mem_gb", "server_mem_gb"]].sum(axis=1).max() == 1
    # The caps at 32 cores and 64 GB leave the median alone.
    assert factor.loc[~little["worker_cpus"], "worker_cpus"].median() == pytest.approx(
        2.6, rel=0.03
    )
    assert factor.loc[~little["worker_mem_gb"], "worker_mem_gb"].median() == pytest.approx(
        2.6, rel=0.03
    )
    assert np.log(factor.loc[~little["worker_mem_gb"], "worker_mem_gb"]).quantile(
        0.8413
    ) == pytest.approx(math.log(2.6) + 0.6, abs=0.04)
    assert wrong[["worker_cpus", "server_cpus"]].max().max() <= 32


def test_so_much_lies_idle_as_was_published(wrong: pd.DataFrame) -> None:
    rows = [ROWS[name.replace("-", "")] for name in wrong["model"].astype(str)]
    compute, update = (
        np.array([getattr(row, name) for row in rows]) for name in ("sample_s", "update_s")
    )
    samples = wrong["total_steps"] * wrong["batch_size"]
    core_s = wrong["cpus"] * wrong["duration_s"]
    assert (samples * (compute + update)).sum() / core_s.sum() == pytest.approx(0.25, abs=0.02)
    needed = (
        wrong["workers"] * wrong["worker_mem_need_gb"]
        + wrong["server_mem_need_gb"]
        + wrong["server_mem_growth_gb"] / 2
    )
    fits = (wrong["worker_mem_gb"] >= wrong["worker_mem_need_gb"]) & (
        wrong["server_mem_gb"] * wrong["servers"]
        >= wrong["server_mem_need_gb"] + wrong["server_mem_growth_gb"]
    )
    used = (needed * wrong["duration_s"])[fits].sum() / (wrong["mem_gb"] * wrong["duration_s"])[
        fits
    ].sum()
    assert used == pytest.approx(0.29, abs=0.05)
    assert fits.mean() == pytest.approx(0.936, abs=0.007)


def test_memory_grows_in_its_share_of_jobs(wrong: pd.DataFrame) -> None:
    grows = wrong["server_mem_growth_gb"] > 0
    assert grows.mean() == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / MANY))
    ratio = (wrong["server_mem_growth_gb"] / wrong["server_mem_need_gb"])[grows]
    # Uniform from 0.5 to 2, times the work of the job over that of its scenario.
    assert ratio.mean() == pytest.approx(1.25 * math.exp(0.25**2 / 2), rel=0.03)


def test_runs_of_a_scenario_are_alike() -> None:
    frame = made("jobs=3000,scenarios=40,wrong=no")
    groups = frame.groupby("name", observed=True)
    assert len(groups) == 40
    assert (
        groups[
            [
                "user",
                "model",
                "workers",
                "servers",
                "worker_mem_need_gb",
                "server_mem_need_gb",
                *PER_REPLICA[:3],
            ]
        ].nunique()
        == 1
    ).all(axis=None)
    logs = np.log(frame["total_steps"])
    assert (
        logs - logs.groupby(frame["name"], observed=True).transform("mean")
    ).std() == pytest.approx(0.25, abs=0.015)


def test_recorded_durations_are_those_of_the_performance_model(wrong: pd.DataFrame) -> None:
    chosen = workload("dlrover:jobs=200")
    trace = chosen.make()
    model = ParameterServer().bind(trace, chosen.machines())
    assert np.allclose(model.work(), trace.numbers("total_steps") * trace.numbers("batch_size"))
    assert np.allclose(
        model._recorded_speed() * trace.numbers("duration_s"), model.work(), rtol=1e-9
    )
    assert (wrong["batch_size"] == wrong["workers"] * BATCH).all()


def test_the_load_is_what_is_needed_over_what_there_is() -> None:
    for text in ("load=0.8,wrong=no", "load=0.8,wrong=no,nodes=60"):
        chosen = workload(f"dlrover:{text}")
        trace = chosen.make()
        cores = sum(node.cpus for node in chosen.machines().nodes)
        assert (trace.frame["cpus"] * trace.frame["duration_s"]).sum() / (
            cores * trace.span_s
        ) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        ("load=0.8", {"submit_time_s"}),
        ("nodes=60", {"submit_time_s"}),
        ("growing=1", {"server_mem_growth_gb", "server_mem_gb", "mem_gb"}),
        ("under=0.5,of_memory=0", {"duration_s", "cpus", "mem_gb", *PER_REPLICA}),
        ("wrong=no", {"duration_s", "cpus", "mem_gb", *PER_REPLICA}),
        ("median_h=20", {"submit_time_s", "duration_s", "total_steps"}),
    ],
)
def test_a_parameter_changes_what_it_names_only(change: str, columns: set[str]) -> None:
    plain, other = made(""), made(change)
    assert {
        name for name in plain if not plain[name].astype("str").equals(other[name].astype("str"))
    } == columns


def test_jobs_run_and_those_that_lack_memory_fail() -> None:
    frame = made("jobs=60,seed=2,load=0.1")
    lacks = (frame["worker_mem_gb"] < frame["worker_mem_need_gb"]) | (
        frame["server_mem_gb"] * frame["servers"]
        < frame["server_mem_need_gb"] + frame["server_mem_growth_gb"]
    )
    assert 2 <= lacks.sum() <= 10
    found = run("dlrover:jobs=60,seed=2,load=0.1").jobs
    assert (found["outcome"].astype(str) == np.where(lacks, "failed", "completed")).all()
    assert set(run("dlrover:jobs=60,seed=2,load=0.1,wrong=no").jobs["outcome"]) == {"completed"}


@pytest.mark.parametrize(
    ("case", "slow", "minutes"),
    [
        ("wide_deep", "", 27),
        ("wide_deep", "0:0:inf:0.587", 46),
        ("wide_deep", "24:0:inf:0.1004", 72),
        ("hot", "24:180:inf:0.157", 33),
        ("xdeepfm", "", 104),
        ("xdeepfm", "0:0:inf:0.433", 240),
        ("xdeepfm", "8:0:inf:0.292", 203),
        ("deepfm", "", 30),
    ],
)
def test_single_jobs_take_the_published_times(case: str, slow: str, minutes: float) -> None:
    jobs = run(f"dlrover-check:case={case}", slow=slow).jobs
    assert jobs["finish_s"].iloc[0] / 60 == pytest.approx(minutes, rel=0.005)


def test_equal_choices_are_written_alike() -> None:
    assert (
        canonical("dlrover:wrong=false,seed=3,load=0.40,little=.3/.9")
        == canonical("dlrover:seed=3,wrong=no")
        == "dlrover:seed=3,wrong=no"
    )
    assert canonical("dlrover-check:case=wide_deep") == "dlrover-check"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "dlrover:little=0.9/0.3",
            "dlrover: little must be two ascending numbers, such as 0.3/0.9.",
        ),
        ("dlrover:little=0.5", "dlrover: little must be two ascending numbers"),
        ("dlrover:busy=0.5", "busy"),
        ("dlrover:under=2", "under"),
        ("dlrover:jobs=1", "jobs"),
        ("dlrover-check:case=straggler", "case"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence.replace(".", r"\.")):
        workload(text)


def test_users_correct_later_runs_of_a_scenario_but_never_its_first() -> None:
    wrong, right = (DLRoverWorkload(wrong=wrong, seed=3).make().frame for wrong in (True, False))
    learnt = DLRoverWorkload(corrected=1.0, seed=3).make().frame
    first = ~learnt["name"].duplicated()
    asked = ["worker_cpus", "server_cpus", "worker_mem_gb", "server_mem_gb"]
    assert 1 < first.sum() < len(learnt)
    assert (learnt.loc[first, asked] == wrong.loc[first, asked]).all(axis=None)
    assert (learnt.loc[~first, asked] == right.loc[~first, asked]).all(axis=None)
    half = DLRoverWorkload(corrected=0.5, seed=3).make().frame
    as_right = (half.loc[~first, asked] == right.loc[~first, asked]).all(axis=1).mean()
    assert 0.35 < as_right < 0.65
    assert DLRoverWorkload(corrected=0.0, seed=3).make().frame.equals(wrong)

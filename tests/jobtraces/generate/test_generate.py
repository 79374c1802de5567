from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from allocators import make
from jobtraces.generate import PROFILES, generate, with_history
from jobtraces.generate.workload import gpus_by_type, quantile, stretch_run_times, vary_run_times
from sim.cluster import Cluster
from sim.contract import Spec
from sim.engine.simulator import Simulator
from sim.errors import ParameterError, TraceError
from sim.trace import Trace

REAL = ("philly", "venus", "pai")
KEPT = {"philly": 0.975, "venus": 0.98, "pai": 0.998}  # published share of jobs of at most 48 hours
BIG = Cluster.parse("2048x8:v100")


def offered(trace: Trace, cluster: Cluster) -> float:
    return trace.gpu_seconds / (cluster.gpus * trace.span_s)


def hourly(trace: Trace) -> np.ndarray:
    return np.bincount((trace.frame["submit_time_s"] // 3600).astype(int))


@pytest.fixture(scope="module")
def published() -> dict[str, Trace]:
    """One trace of each real profile at its published rate, on a cluster that bounds no size."""
    return {name: generate(name, jobs=60_000, seed=5, cluster=BIG, load=None) for name in REAL}


@pytest.mark.parametrize("profile", PROFILES)
def test_the_same_arguments_give_the_same_jobs(profile: str) -> None:
    first, again, other = (generate(profile, jobs=1500, seed=seed) for seed in (3, 3, 4))
    assert first.digest == again.digest
    assert first.digest != other.digest


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("load", [0.5, 0.9, 1.05])
def test_the_load_is_met_and_the_clock_runs_from_0_to_the_span(profile: str, load: float) -> None:
    cluster = Cluster.parse("40x8:v100,16x4:t4")
    trace = generate(profile, jobs=4000, seed=1, cluster=cluster, load=load)
    assert len(trace) == 4000
    assert offered(trace, cluster) == pytest.approx(load, rel=1e-3)
    assert trace.frame["submit_time_s"].is_monotonic_increasing
    assert trace.frame["submit_time_s"].iloc[0] == 0


def test_load_and_days_together_scale_the_run_times() -> None:
    cluster = Cluster.parse("8x8:v100")
    trace = generate("philly", jobs=1000, seed=1, cluster=cluster, load=0.8, days=5)
    assert trace.span_s == 5 * 86_400
    assert offered(trace, cluster) == pytest.approx(0.8, rel=0.01)
    unscaled = generate("philly", jobs=1000, seed=1, cluster=cluster, load=None, days=5)
    assert unscaled.span_s == trace.span_s
    assert (unscaled.frame["num_gpus"] == trace.frame["num_gpus"]).all()
    assert abs(np.log(trace.gpu_seconds / unscaled.gpu_seconds)) > 0.1


def test_with_neither_load_nor_days_the_published_rate_holds(published: dict[str, Trace]) -> None:
    for name, trace in published.items():
        assert len(trace) / (trace.span_s / 86_400) == pytest.approx(
            PROFILES[name].jobs_per_day, rel=1e-3
        )


@pytest.mark.parametrize("profile", REAL)
def test_sizes_follow_the_published_table(published: dict[str, Trace], profile: str) -> None:
    frame = published[profile].frame
    work = frame["num_gpus"] * frame["duration_s"]
    for group in PROFILES[profile].sizes:
        mine = frame["num_gpus"].isin(list(group.split))
        assert 100 * mine.mean() == pytest.approx(group.jobs, abs=1.5), group
        assert 100 * work[mine].sum() / work.sum() == pytest.approx(group.gpu_time, abs=5), group


@pytest.mark.parametrize(
    ("profile", "p10", "p25", "p50", "p75", "p90", "p95"),
    [
        ("philly", 36, 108, 854, 3193, 15889, 69332),
        ("venus", 17, 70, 209, 1325, 17852, 59377),
        ("pai", 28, 91, 485, 3103, 11432, 22809),
    ],
)
def test_run_times_below_the_cap_have_the_published_quantiles(
    published: dict[str, Trace],
    profile: str,
    p10: int,
    p25: int,
    p50: int,
    p75: int,
    p90: int,
    p95: int,
) -> None:
    run = published[profile].frame["duration_s"]
    kept = KEPT[profile]
    found = run.quantile([share / kept for share in (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)]).to_numpy()
    assert found == pytest.approx([p10, p25, p50, p75, p90, p95], rel=0.25)
    assert run.max() <= PROFILES[profile].cap_s


def crowding(trace: Trace, cap_s: float) -> tuple[float, float]:
    """Return the largest share of jobs with one and the same run time in the upper half below the
    cap, and the share in the top 2 %.
    """
    run = trace.frame["duration_s"]
    assert run.max() <= cap_s
    upper = run[run > cap_s / 2]
    return upper.value_counts().max() / len(run), (run > 0.98 * cap_s).mean()


@pytest.mark.parametrize(
    ("profile", "jobs", "spec", "load", "days"),
    [
        ("philly", 10_000, "40x8:p100", 0.85, None),
        ("venus", 10_000, "64x8:v100", 0.82, None),
        ("pai", 10_000, "64x2:p100,32x2:t4,24x8:v100", 0.82, None),
        ("week", 1_200, "4x8:a100,4x8:v100", 0.85, 7),
        ("week", 1_200, "4x8:a100,4x8:v100", 1.1, 7),
        ("philly", 10_000, "40x8:p100", 0.9, 30),
        ("venus", 10_000, "64x8:v100", 0.9, 30),
    ],
)
def test_no_run_times_pile_up_at_the_cap(
    profile: str, jobs: int, spec: str, load: float, days: float | None
) -> None:
    for seed in (1, 2, 3):
        trace = generate(
            profile, jobs=jobs, seed=seed, cluster=Cluster.parse(spec), load=load, days=days
        )
        most, top = crowding(trace, PROFILES[profile].cap_s)
        assert most <= 0.01
        assert top <= 0.02


def test_repeats_of_the_longest_jobs_stay_below_the_cap_and_differ() -> None:
    run = np.full(1000, 0.99 * 43_200.0)
    again = vary_run_times(run, 0.1 * np.random.default_rng(1).standard_normal(1000), 43_200.0)
    assert again.max() <= 43_200
    assert len(np.unique(again)) == 1000
    assert np.log(again / run).std() == pytest.approx(0.06, abs=0.02)


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_a_stretch_moves_the_distribution_by_one_factor_and_keeps_the_order(factor: float) -> None:
    table, cap_s = PROFILES["philly"].durations, 172_800.0
    rank = (np.arange(10_000) + 0.5) / 10_000
    run = quantile(table, rank, cap_s)
    aim = factor * quantile(table, rank, cap_s / factor)
    found = stretch_run_times(run, np.ones(len(run), np.int64), float(aim.sum()), table, cap_s)
    assert found.sum() == pytest.approx(aim.sum(), rel=1e-3)
    assert np.all(np.diff(found) >= 0)
    long = aim > 100  # below, whole seconds are coarse
    assert found[long] == pytest.approx(aim[long], rel=0.02)


@pytest.mark.parametrize("profile", PROFILES)
def test_hourly_counts_are_as_bursty_as_published(profile: str) -> None:
    found = []
    for seed in range(4):
        counts = hourly(generate(profile, jobs=40_000, seed=seed, cluster=BIG, load=None))
        found.append(counts.var() / counts.mean())
    assert np.mean(found) == pytest.approx(PROFILES[profile].dispersion, rel=0.3)


def test_arrivals_follow_the_hours_of_the_day(published: dict[str, Trace]) -> None:
    for name in ("venus", "pai"):
        hour = (published[name].frame["submit_time_s"] // 3600 % 24).astype(int)
        shares = np.bincount(hour, minlength=24) / len(hour)
        assert np.corrcoef(shares, PROFILES[name].hours)[0, 1] > 0.8


def test_repeats_share_second_user_and_size() -> None:
    frame = generate("pai", jobs=20_000, seed=2, cluster=BIG).frame
    same = (
        (frame["submit_time_s"].diff() == 0)
        & (frame["user"] == frame["user"].shift())
        & (frame["num_gpus"] == frame["num_gpus"].shift())
    )
    assert same.mean() == pytest.approx(PROFILES["pai"].repeats, abs=0.03)
    ratio = np.log(frame["duration_s"] / frame["duration_s"].shift())[same]
    assert ratio.std() < 0.3


def test_one_user_submits_by_the_clock() -> None:
    frame = generate("philly", jobs=20_000, seed=2, cluster=Cluster.parse("512x8:v100")).frame
    gaps = frame.loc[frame["user"] == "cron", "submit_time_s"].diff().dropna()
    assert len(gaps) == 0.04 * 20_000 - 1
    assert gaps.std() < 3
    assert frame.loc[frame["user"] == "cron", "duration_s"].median() == pytest.approx(69, rel=0.1)


@pytest.mark.parametrize(
    ("profile", "completed", "failed", "cancelled"),
    [("philly", 60.4, 30.5, 9.0), ("venus", 52.6, 20.2, 27.2)],
)
def test_outcomes_are_near_the_published_shares(
    published: dict[str, Trace], profile: str, completed: float, failed: float, cancelled: float
) -> None:
    frame = published[profile].frame
    shares = 100 * frame["status"].value_counts(normalize=True)
    assert [shares["completed"], shares["failed"], shares["cancelled"]] == pytest.approx(
        [completed, failed, cancelled], abs=4
    )
    medians = frame.groupby("status", observed=True)["duration_s"].median()
    assert medians["failed"] < medians["completed"] < medians["cancelled"]


def test_few_users_submit_most_jobs(published: dict[str, Trace]) -> None:
    for name, share in (("philly", 0.53), ("venus", 0.48)):
        assert published[name].frame["user"].value_counts(normalize=True).head(
            5
        ).sum() == pytest.approx(share, abs=0.06)


def test_users_have_habits() -> None:
    frame = generate("philly", jobs=20_000, seed=1, cluster=BIG).frame
    frame = frame[frame["user"] != "cron"]
    frame = frame.assign(log=np.log(frame["duration_s"]))
    groups = frame.groupby("user", observed=True)["log"]
    explained = (
        (groups.mean() - frame["log"].mean()).pow(2).mul(groups.size()).sum()
        / len(frame)
        / frame["log"].var()
    )
    assert explained > 0.2


def test_time_limits_are_round_and_never_below_the_run_time() -> None:
    frame = generate("venus", jobs=10_000, seed=1, cluster=BIG).frame
    given = frame.dropna(subset="time_limit_s")
    assert frame["time_limit_s"].isna().mean() == pytest.approx(0.4, abs=0.02)
    assert (given["time_limit_s"] >= given["duration_s"]).all()
    assert (given["time_limit_s"] % 1800 == 0).all()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("spec", ["1x1:v100", "2x8:v100", "16x2:t4,4x8:v100,3x0:cpu"])
def test_every_job_fits_the_type_it_ran_on(profile: str, spec: str) -> None:
    cluster = Cluster.parse(spec)
    frame = generate(profile, jobs=1200, seed=1, cluster=cluster).frame
    sizes = frame["gpu_type"].astype(str).map(gpus_by_type(cluster))
    assert sizes.notna().all()
    assert (frame["num_gpus"] <= sizes).all()
    assert frame["num_gpus"].max() <= max(
        1, max(gpus_by_type(cluster).values()) * PROFILES[profile].largest_share
    )


def test_types_share_the_work_evenly() -> None:
    cluster = Cluster.parse("64x2:p100,32x2:t4,24x8:v100")
    frame = generate("pai", jobs=20_000, seed=3, cluster=cluster, load=0.9).frame
    work = (frame["num_gpus"] * frame["duration_s"]).groupby(frame["gpu_type"], observed=True).sum()
    per_gpu = work / pd.Series(gpus_by_type(cluster))
    assert per_gpu.max() / per_gpu.min() < 1.1


def test_models_run_on_the_gpus_they_are_given() -> None:
    frame = generate("week", jobs=3000, seed=1).frame
    assert set(frame["model"].cat.categories) == set(PROFILES["week"].models or {})
    assert (frame.loc[frame["model"].isin(["A3C", "CycleGAN"]), "num_gpus"] == 1).all()
    for model, (batches, _) in (PROFILES["week"].models or {}).items():
        assert set(frame.loc[frame["model"] == model, "batch_size"]) == set(map(float, batches))


@pytest.mark.slow
def test_the_benchmark_workload_is_equally_hard_at_any_length() -> None:
    cluster = Cluster.parse("512x8:v100")
    short, long = (
        generate("philly", jobs=jobs, seed=1, cluster=cluster, load=0.9)
        for jobs in (100_000, 400_000)
    )
    for column in ("duration_s", "num_gpus"):
        assert short.frame[column].mean() == pytest.approx(long.frame[column].mean(), rel=0.02)
    assert len(short) / short.span_s == pytest.approx(len(long) / long.span_s, rel=0.02)
    bursts = [hourly(trace).var() / hourly(trace).mean() for trace in (short, long)]
    assert bursts[0] == pytest.approx(bursts[1], rel=0.3)


@pytest.mark.slow
def test_under_fifo_the_benchmark_workload_waits_alike_at_any_length() -> None:
    """One short trace is 6 days with bursts of its own, so the mean of three stands against a long
    one; a run-away would grow with length.
    """
    cluster = Cluster.parse("256x8:v100")

    def mean_wait_s(jobs: int, seed: int) -> float:
        trace = generate("philly", jobs=jobs, seed=seed, cluster=cluster, load=0.9)
        done = Simulator(trace, cluster, make(Spec("fifo"))).run().jobs
        return float((done["first_start_s"] - done["submit_s"]).mean())

    short = float(np.mean([mean_wait_s(50_000, seed) for seed in (1, 2, 3)]))
    assert short > 3600
    assert 0.5 < mean_wait_s(150_000, 1) / short < 2


def test_the_made_history_never_holds_more_than_there_is_and_queues() -> None:
    cluster = Cluster.parse("4x8:a100,4x8:v100")
    trace = with_history(
        generate("week", jobs=1200, seed=3, cluster=cluster, load=0.85, days=7), cluster, 3
    )
    frame = trace.frame
    for kind, size in gpus_by_type(cluster).items():
        mine = frame[frame["gpu_type"] == kind]
        ends = pd.DataFrame({"at": mine["end_time_s"], "gpus": -mine["num_gpus"]})
        steps = pd.concat(
            (pd.DataFrame({"at": mine["start_time_s"], "gpus": mine["num_gpus"]}), ends)
        ).sort_values(["at", "gpus"])
        held = steps["gpus"].cumsum()
        assert size * 0.9 <= held.max() <= size
    wait = frame["start_time_s"] - frame["submit_time_s"]
    assert wait.min() >= 0
    assert wait.mean() > 600
    assert (frame["end_time_s"] - frame["start_time_s"] == frame["duration_s"]).all()
    assert with_history(trace, cluster, 3).digest == trace.digest


def test_in_the_made_history_small_jobs_may_pass_for_an_hour_and_no_longer() -> None:
    # 4 GPUs. The first job holds 3 of them for 5 h; the second wants 4 and blocks; the third (1
    # GPU, at 600 s) may pass, the fourth (at 4000 s) may not.
    frame = pd.DataFrame(
        {
            "job_id": list("abcd"),
            "submit_time_s": [0, 60, 600, 4000],
            "num_gpus": [3, 4, 1, 1],
            "duration_s": [18_000, 600, 600, 600],
        }
    )
    found = with_history(Trace.of(frame), Cluster.parse("1x4:v100"), 0).frame
    delay = np.rint(4 * np.exp(np.random.default_rng(0).standard_normal(4)))
    end_first = delay[0] + 18_000
    end_second = end_first + delay[1] + 600
    assert (found["start_time_s"] - delay).tolist() == [0, end_first, 600, end_second]


def test_a_history_needs_a_cluster_that_is_big_enough() -> None:
    frame = pd.DataFrame(
        {"job_id": ["a"], "submit_time_s": [0], "num_gpus": [9], "duration_s": [10]}
    )
    with pytest.raises(TraceError, match="job a requests 9 GPUs"):
        with_history(Trace.of(frame), Cluster.parse("1x8:v100"), 0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"profile": "mars"}, "no profile 'mars'"),
        ({"jobs": 1}, "at least 2"),
        ({"seed": -1}, "0 or above"),
        ({"load": 0.0}, "above 0"),
        ({"load": float("nan")}, "above 0"),
        ({"days": float("inf")}, "above 0"),
        ({"cluster": Cluster.parse("2x0:cpu")}, "no GPUs"),
        ({"load": 5.0, "days": 3000.0}, "Change days, load, jobs or the cluster"),
    ],
)
def test_bad_arguments_get_one_sentence(change: dict[str, object], says: str) -> None:
    arguments = {"profile": "philly", "jobs": 100, "seed": 1} | change
    with pytest.raises(ParameterError, match=says):
        generate(arguments.pop("profile"), **arguments)  # type: ignore[arg-type]

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster import Cluster
from sim.errors import ClusterError, ParameterError
from sim.trace import Trace
from tests.shared import shared
from trainyard.clusters.prices import types_with_guessed_speed
from trainyard.study.scenario import TraceSpec
from trainyard.traces import new_study
from trainyard.traces.fitting import (
    busy_day_gpus,
    cluster_with_gpus,
    fit_cluster,
    fit_virtual_clusters,
    is_guessed_cluster,
    node_size,
    peak_gpus,
)
from trainyard.traces.sources import Source, load_source


def jobs(**columns: list[object]) -> Trace:
    given = {"submit_time_s": [0, 10], "num_gpus": [4, 4], "duration_s": [100, 100], **columns}
    rows = len(given["submit_time_s"])
    return Trace.of(pd.DataFrame({"job_id": [f"j{at}" for at in range(rows)], **given}))


def shapes(cluster: Cluster) -> list[tuple[str, int, int, str]]:
    return [(group.name, group.count, group.gpus, group.gpu_type) for group in cluster.groups]


def test_the_recorded_peak_in_nodes_of_the_usual_size() -> None:
    # Both run from 50 to 100 s: 8 GPUs, two nodes of 4.
    made = fit_cluster(jobs(start_time_s=[0, 50], gpu_type=["T4", "t4"]))
    assert shapes(made.cluster) == [("", 2, 4, "t4")]
    assert made.origin == ("Sized by the recorded peak of GPUs in use. 2 nodes of 4 T4.")


def test_without_starts_the_size_is_a_guess_on_which_jobs_wait() -> None:
    # 800 GPU-seconds within 100 s: 8 GPUs, two nodes of 4. There nobody would wait, so one.
    cluster, how = fit_cluster(jobs())
    assert shapes(cluster) == [("", 1, 4, "unknown")]
    assert how.startswith("A guess without recorded starts: the jobs fill it on their busiest")
    assert how.endswith("1 node of 4 GPUs of unknown type, which count as V100.")
    assert cluster.name == "guessed from trace"
    assert [kind.name for kind in types_with_guessed_speed(cluster)] == ["unknown"]
    # What is written down says it still.
    assert Cluster.from_json(cluster.to_json()) == cluster
    assert is_guessed_cluster(jobs(), cluster)
    assert not is_guessed_cluster(jobs(), Cluster.parse("1x4:v100"))
    assert not is_guessed_cluster(
        jobs(start_time_s=[0, 50]), fit_cluster(jobs(start_time_s=[0, 50])).cluster
    )


DAY = 86_400.0


@pytest.mark.parametrize(
    ("submit_s", "run_s", "gpus", "expected"),
    [
        # One day at 8 GPUs for 12 h and 4 for 6 h: (8 x 12 + 4 x 6) / 24; a quiet day after it.
        ([0, 43_200, 1.5 * DAY], [43_200, 21_600, 3600], [8, 4, 1], 5.0),
        # A job over three days is in use on each of them, with 6 h of another on the second.
        ([0, DAY, 4 * DAY], [3 * DAY, 21_600, 60], [8, 16, 1], 8 + 16 / 4),
        # All within 100 s: 800 GPU-seconds.
        ([0, 10], [100, 100], [4, 4], 8.0),
        # One GPU on each day, but both GPU-days are asked for within one: a load of 1 at most.
        ([0, DAY], [DAY, DAY], [1, 1], 2.0),
    ],
)
def test_gpus_of_the_busiest_day(
    submit_s: list[float], run_s: list[float], gpus: list[float], expected: float
) -> None:
    found = busy_day_gpus(*(np.array(one, float) for one in (submit_s, run_s, gpus)))
    assert found == pytest.approx(expected)


def test_a_number_of_gpus_becomes_nodes_of_the_usual_size() -> None:
    trace = jobs(gpu_type=["t4", "t4"])
    assert shapes(cluster_with_gpus(trace, 10)) == [("", 2, 4, "t4"), ("", 1, 2, "t4")]
    assert shapes(cluster_with_gpus(trace, 3)) == [("", 1, 3, "t4")]
    assert cluster_with_gpus(trace, 10).gpus == 10


def test_each_virtual_cluster_has_nodes_of_the_types_that_its_jobs_need() -> None:
    trace = jobs(
        submit_time_s=[0, 0, 0, 0],
        num_gpus=[8, 2, 8, 0],
        duration_s=[9, 9, 9, 9],
        start_time_s=[0, 0, 9, 0],
        vc=["a", "a", "b", "b"],
        gpu_types_allowed=["a100|h100", "", "", ""],
        gpu_type=["h100", "g2", "g2", ""],
    )
    cluster, how = fit_cluster(trace)
    assert shapes(cluster) == [("a-a100", 1, 8, "a100"), ("a-g2", 1, 8, "g2"), ("b-g2", 1, 8, "g2")]
    assert cluster.partitions == ("a", "b")
    assert "in each of 2 virtual clusters" in how
    assert "G2 has no known speed and counts as V100" in how


def test_the_size_of_a_node_is_that_of_most_jobs_on_several_gpus() -> None:
    def size(*gpus: int) -> int:
        rows = len(gpus)
        return node_size(jobs(submit_time_s=[0] * rows, num_gpus=list(gpus), duration_s=[1] * rows))

    assert [size(1, 1, 1, 2), size(8, 4, 4), size(16, 16, 8), size(1, 3, 32)] == [2, 4, 16, 8]


def test_what_comes_with_the_jobs_wins_and_a_load_may_be_asked_for() -> None:
    own = Cluster.parse("1x8:a100")
    assert fit_cluster(Source(jobs(), {}, own)) == (own, "It comes with these jobs.")
    assert fit_cluster(jobs(), load=0.5).cluster.gpus == 16
    with pytest.raises(ParameterError, match="load = 0 must be above 0"):
        fit_cluster(jobs(), load=0)
    with pytest.raises(ClusterError):
        fit_cluster(jobs(num_gpus=[9_000_000, 1]))


def test_jobs_of_a_file_never_run_on_the_cluster_of_a_sample(tmp_path: object) -> None:
    path, other = f"{tmp_path}/jobs.csv", f"{tmp_path}/more.csv"
    jobs().frame.to_csv(path, index=False)
    jobs(num_gpus=[16, 16]).frame.to_csv(other, index=False)
    study = new_study.sample_study()
    fits = fit_cluster(load_source(TraceSpec(path))).cluster
    assert new_study.with_trace(study, TraceSpec(path)).base.cluster == fits
    tinkered = new_study.with_cluster(study, Cluster.parse("3x8:v100"))
    on_file = new_study.with_trace(tinkered, TraceSpec(path))
    assert on_file.base.cluster == fits
    # The next file gets its own, unless the user chose one for the first.
    bigger = new_study.with_trace(on_file, TraceSpec(other)).base.cluster
    assert bigger == fit_cluster(load_source(TraceSpec(other))).cluster != fits
    mine = new_study.with_cluster(on_file, Cluster.parse("3x8:v100"))
    assert new_study.with_trace(mine, TraceSpec(other)).base.cluster == mine.base.cluster
    # A window leaves it alone, and a sample brings its own again.
    assert new_study.with_trace(on_file, TraceSpec(path, load=2.0)).base.cluster == fits
    assert new_study.with_trace(on_file, study.base.trace).base.cluster == study.base.cluster


def counts(trace: Trace, gpus: int = 8, kind: str = "v100") -> dict[str, int]:
    made = fit_virtual_clusters(trace, gpus, [kind] * len(trace))
    assert {(group.gpus, group.gpu_type) for group in made.groups} == {(gpus, kind)}
    assert all(group.partitions == ((group.name,) if group.name else ()) for group in made.groups)
    return {group.name: group.count for group in made.groups}


def test_peak_of_recorded_use_of_each_home() -> None:
    # a holds 8 GPUs over 0..100 and b 4 over 50..60; c takes 8 at 100, the instant a leaves: the
    # peak is 12, which needs 2 nodes.
    trace = jobs(
        submit_time_s=[0, 0, 0, 0],
        start_time_s=[0, 50, 100, 0],
        duration_s=[100, 10, 50, 5],
        num_gpus=[8, 4, 8, 24],
        vc=["one", "one", "one", "two"],
    )
    assert counts(trace) == {"one": 2, "two": 3}
    assert counts(trace, 4, "a100") == {"one": 3, "two": 6}


def test_a_guess_is_smaller_than_all_jobs_at_once() -> None:
    # 10 jobs of 8 GPUs for 1000 s over 900 s of submissions; the longest job, 1000 s, is the longer
    # span: 80,000 / 1000 = 80 GPUs, 10 nodes. There nobody would wait.
    trace = jobs(submit_time_s=list(range(0, 1000, 100)), duration_s=[1000] * 10, num_gpus=[8] * 10)
    assert counts(trace) == {"": 9}


def test_the_biggest_job_fits() -> None:
    trace = jobs(submit_time_s=[0, 1_000_000], duration_s=[10, 10], num_gpus=[64, 1])
    assert counts(trace) == {"": 8}


def test_partitions_are_homes_where_there_are_no_virtual_clusters() -> None:
    trace = jobs(submit_time_s=[0, 1], duration_s=[10, 10], num_gpus=[8, 16], partition=["x", "y"])
    # The biggest job of each fits.
    assert counts(trace) == {"x": 1, "y": 2}
    both = jobs(num_gpus=[8, 16], vc=["a", "a"], partition=["x", "y"], duration_s=[10, 10])
    assert list(counts(both)) == ["a"]


def test_too_many_nodes_are_refused_with_what_to_check() -> None:
    with pytest.raises(ClusterError, match=r"would need 1,125,000 nodes of 8 GPUs\. Check the"):
        counts(jobs(submit_time_s=[0], duration_s=[1], num_gpus=[9_000_000]))


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(1, 9)),
        min_size=1,
        max_size=30,
    )
)
def test_peak_equals_a_count_second_by_second(jobs: list[tuple[int, int, int]]) -> None:
    start, run, gpus = (np.array(column, float) for column in zip(*jobs, strict=True))
    expected = max(sum(g for s, r, g in jobs if s <= second < s + r) for second in range(80))
    assert peak_gpus(start, run, gpus) == expected


def test_philly_holds_its_own_history() -> None:
    path = shared("traces/philly_cluster_job_log/cluster_job_log_rebuilt.json")
    trace = load_source(TraceSpec(str(path))).trace
    made = fit_cluster(trace).cluster
    assert made.partitions == (
        *("0e4a51", "103959", "2869ce", "51b7ef", "7f04ca", "e13805", "ee9e8c"),
    )
    biggest = trace.frame.groupby("vc", observed=True)["num_gpus"].max()
    assert all(group.count * group.gpus >= biggest[group.name] for group in made.groups)

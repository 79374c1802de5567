from __future__ import annotations

import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.errors import ClusterError, ParameterError
from sim.trace import Trace
from trainyard.clusters.prices import guessed
from trainyard.study.scenario import TraceSpec
from trainyard.traces import start
from trainyard.traces.fitting import cluster_for, node_size
from trainyard.traces.sources import Source, load_source


def jobs(**columns: list[object]) -> Trace:
    given = {"submit_time_s": [0, 10], "num_gpus": [4, 4], "duration_s": [100, 100], **columns}
    rows = len(given["submit_time_s"])
    return Trace.of(pd.DataFrame({"job_id": [f"j{at}" for at in range(rows)], **given}))


def shapes(cluster: Cluster) -> list[tuple[str, int, int, str]]:
    return [(group.name, group.count, group.gpus, group.gpu_type) for group in cluster.groups]


def test_the_recorded_peak_in_nodes_of_the_usual_size() -> None:
    # Both run from 50 to 100 s: 8 GPUs, two nodes of 4.
    made = cluster_for(jobs(start_time_s=[0, 50], gpu_type=["T4", "t4"]))
    assert shapes(made.cluster) == [("", 2, 4, "t4")]
    assert made.how == ("Sized by the most GPUs in use at once, as recorded. 2 nodes of 4 T4.")


def test_without_starts_a_load_and_without_a_type_a_guess() -> None:
    # 800 GPU-seconds / (0.85 x 100 s) = 9.4 GPUs, three nodes of 4.
    cluster, how = cluster_for(jobs())
    assert shapes(cluster) == [("", 3, 4, "unknown")]
    assert "85 % of the GPU time, as no starts are recorded" in how
    assert how.endswith("3 nodes of 4 GPUs of unknown type, which count as V100.")
    assert [kind.name for kind in guessed(cluster)] == ["unknown"]
    # What is written down says it still.
    assert Cluster.from_json(cluster.to_json()) == cluster


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
    cluster, how = cluster_for(trace)
    assert shapes(cluster) == [("a-a100", 1, 8, "a100"), ("a-g2", 1, 8, "g2"), ("b-g2", 1, 8, "g2")]
    assert cluster.partitions == ("a", "b")
    assert "in each of 2 virtual clusters" in how
    assert "no speed of G2 is known, so V100 is guessed" in how


def test_the_size_of_a_node_is_that_of_most_jobs_on_several_gpus() -> None:
    def size(*gpus: int) -> int:
        rows = len(gpus)
        return node_size(jobs(submit_time_s=[0] * rows, num_gpus=list(gpus), duration_s=[1] * rows))

    assert [size(1, 1, 1, 2), size(8, 4, 4), size(16, 16, 8), size(1, 3, 32)] == [2, 4, 16, 8]


def test_what_comes_with_the_jobs_wins_and_a_load_may_be_asked_for() -> None:
    own = Cluster.parse("1x8:a100")
    assert cluster_for(Source(jobs(), {}, own)) == (own, "It comes with these jobs.")
    assert cluster_for(jobs(), load=0.5).cluster.gpus == 16
    with pytest.raises(ParameterError, match="load = 0 is not above 0"):
        cluster_for(jobs(), load=0)
    with pytest.raises(ClusterError):
        cluster_for(jobs(num_gpus=[9_000_000, 1]))


def test_jobs_of_a_file_never_run_on_the_cluster_of_a_sample(tmp_path: object) -> None:
    path, other = f"{tmp_path}/jobs.csv", f"{tmp_path}/more.csv"
    jobs().frame.to_csv(path, index=False)
    jobs(num_gpus=[16, 16]).frame.to_csv(other, index=False)
    study = start.sample_study()
    fits = cluster_for(load_source(TraceSpec(path))).cluster
    assert start.with_trace(study, TraceSpec(path)).base.cluster == fits
    tinkered = start.with_cluster(study, Cluster.parse("3x8:v100"))
    on_file = start.with_trace(tinkered, TraceSpec(path))
    assert on_file.base.cluster == fits
    # The next file gets its own, unless the user chose one for the first.
    bigger = start.with_trace(on_file, TraceSpec(other)).base.cluster
    assert bigger == cluster_for(load_source(TraceSpec(other))).cluster != fits
    mine = start.with_cluster(on_file, Cluster.parse("3x8:v100"))
    assert start.with_trace(mine, TraceSpec(other)).base.cluster == mine.base.cluster
    # A window leaves it alone, and a sample brings its own again.
    assert start.with_trace(on_file, TraceSpec(path, load=2.0)).base.cluster == fits
    assert start.with_trace(on_file, study.base.trace).base.cluster == study.base.cluster

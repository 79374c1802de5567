"""Look-alikes of traces, and two traces side by side."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import trainyard as ty
from jobtraces import read
from sim.cluster import Cluster
from sim.errors import TrainyardError
from sim.trace import Trace
from tests.shared import shared
from trainyard.cli.main import main
from trainyard.study.scenario import TraceSpec
from trainyard.traces import likeness
from trainyard.traces.samples import SAMPLES, load_sample
from trainyard.traces.sources import load_source

REAL = (
    "alibaba_gpu_v2023_openb/openb_pod_list_default.csv",
    "alibaba_gpu_v2025_dlrm/disaggregated_DLRM_trace.csv",
    "alibaba_pai_v2020_tasks/alibaba_trace_sub.csv",
    "chronus/trace_job_Philly_MIX2.csv",
    "dirlab_unified_csv/helios_data_training.csv",
    "dirlab_unified_csv/philly_data_training.csv",
    "helios_venus_gpu/helios_trace.csv",
    "hydra_hetero_deadline/20_ddl.csv",
    "microsoft_itp/cluster01.csv",
    "microsoft_itp/cluster03.csv",
    "microsoft_itp/cluster06.csv",
    "muri/trace1.csv",
    "philly_cluster_job_log/cluster_job_log_rebuilt.json",
    "philly_pollux_csv/philly.csv",
    "swf/hpc2n.swf",
    "swf/theta_19col_train.swf",
)


def trace(gpus: list[int], run_s: list[float], every_s: float = 60.0) -> Trace:
    count = len(gpus)
    return Trace.of(
        pd.DataFrame(
            {
                "job_id": [str(at) for at in range(count)],
                "submit_time_s": np.arange(count) * every_s,
                "num_gpus": gpus,
                "duration_s": run_s,
            }
        )
    )


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "tiny"])
def test_samples_and_their_look_alikes_are_alike(name: str) -> None:
    found = likeness.compare_with_fit(load_sample(name)[0])
    assert max(found.sizes, found.durations) <= likeness.CLOSE_DISTANCE
    assert found.spread == pytest.approx(1, abs=likeness.CLOSE_SPREAD)
    assert found.is_close


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_traces_and_their_look_alikes_are_alike(name: str) -> None:
    found = likeness.compare_with_fit(read(shared(f"traces/{name}")).trace)
    assert found.jobs >= likeness.MIN_COMPARED_JOBS
    assert max(found.sizes, found.durations) <= likeness.CLOSE_DISTANCE
    assert math.isnan(found.spread) or found.spread == pytest.approx(1, abs=likeness.CLOSE_SPREAD)


def test_distances_by_hand() -> None:
    assert likeness.ks_distance(np.array([1.0, 2, 3, 4]), np.array([3.0, 4, 5, 6])) == 0.5
    assert likeness.ks_distance(np.array([1.0, 1]), np.array([1.0])) == 0
    # 60 jobs in the first hour and none in the second, then 60: mean 40, variance 800.
    spread = trace([1] * 61, [1.0] * 61, every_s=60)
    assert likeness.hourly_spread(spread) == pytest.approx(np.var([60, 1]) / np.mean([60, 1]))
    assert math.isnan(likeness.hourly_spread(trace([1, 1], [1.0, 1.0])))


def test_the_largest_difference_comes_first() -> None:
    short, long = trace([1] * 10, [60.0] * 10), trace([1] * 10, [7200.0] * 10)
    found = likeness.compare_traces(short, long)
    assert (found.sizes, found.durations, found.gaps, found.pace) == (0, 1, 0, 1)
    assert likeness.difference_sentence(found, "A", "B") == (
        "Largest difference: run times, median 1 min in A and 2 h in B; the shares of jobs differ"
        " by up to 100.0 points."
    )
    rows = found.table.set_index("what")
    assert rows.loc["GPU-hours"].tolist() == ["0", "20"]


def test_another_pace_alone_is_no_other_pattern() -> None:
    slow, fast = trace([1] * 90, [9.0] * 90, 120), trace([1] * 90, [9.0] * 90, 60)
    found = likeness.compare_traces(slow, fast)
    assert found.gaps == 0
    assert found.pace == pytest.approx(2)
    assert likeness.difference_sentence(found, "A", "B") == (
        "Largest difference: the pace, 728 jobs per day in A and 1,456 in B; the shares of jobs by"
        " size, run time and gap differ by at most 0.0 points."
    )
    little = likeness.compare_traces(slow, trace([1] * 90, [9.0] * 90, 110))
    assert likeness.difference_sentence(little, "A", "B").endswith(
        "B has 1.09 times the jobs per day."
    )
    assert likeness.difference_sentence(little, "A", "B").startswith("Hardly any difference")


def test_the_source_carries_no_name_of_the_site() -> None:
    jobs, _ = load_sample("week")
    cluster = Cluster.parse("2x8:a100,3x4:secretchip,2x8:a100,4x0:cpu")
    spec = likeness.fit_look_alike(jobs, load=2, seed=1, cluster=cluster)
    assert likeness.is_look_alike(spec.source)
    source = load_source(spec)
    assert source.cluster is not None
    assert "secret" not in spec.source
    assert [(group.count, group.gpus, group.gpu_type) for group in source.cluster.groups] == [
        (4, 8, "a100"),
        (3, 4, "v100"),
    ]
    assert len(source.trace) == 2 * len(jobs)
    assert likeness.parse_figures(likeness.figures_document(spec)) is not None
    assert likeness.parse_figures('{"name": "fifo", "params": {}}') is None
    assert likeness.parse_figures("no json") is None


def test_the_command_line_writes_jobs_and_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, jobs, again = (tmp_path / name for name in ("week.json", "twice.csv", "half.csv"))
    like = ["generate", "--like", "sample:week", "--seed", "4", "--load", "2"]
    assert main([*like, "--figures", str(figures), "--out", str(jobs)]) == 0
    said = capsys.readouterr().out
    assert "Shares of jobs differ by at most" in said
    assert "does not prove anonymity" in said
    assert len(pd.read_csv(jobs)) == 2400
    assert json.loads(figures.read_text())["name"] == "like"
    half = ["generate", "--like", str(figures), "--load", "0.5", "--out", str(again)]
    assert main(half) == 0
    assert len(pd.read_csv(again)) == 600


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--like", "sample:week"], "Nothing to write"),
        (["--like", "sample:week", "--jobs", "5", "--out", "x.csv"], "--jobs does not work here"),
        (["week", "--figures", "x.json", "--out", "x.csv"], "week does not work here"),
        (["week", "--zone", "UTC", "--out", "x.csv"], "--zone controls how a trace is read"),
        (["week"], "Nothing to write to"),
        (["--like", "sample:tiny", "--out", "x.csv"], "12 jobs are too few"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_from_python_it_is_a_source_like_any_other() -> None:
    text = ty.look_alike("sample:week", load=0.5, seed=2)
    assert text.startswith("made:like:")
    assert len(ty.read_trace(text).trace) == 600
    assert TraceSpec(text).source == text
    with pytest.raises(TrainyardError, match="load = -1 is outside"):
        ty.look_alike("sample:week", load=-1)

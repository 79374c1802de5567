"""Gavel's and Shockwave's traces: four layouts told by their content, durations from the table, odd
rows counted.
"""

from __future__ import annotations

import csv
import gzip
from functools import cache
from math import isnan
from pathlib import Path

import numpy as np
import pytest

from jobtraces import Import, peek, read
from sim.cluster import Cluster
from sim.errors import TraceError
from sim.perf.measured import built_in
from sim.perf.profiled import Profiled
from tests.jobtraces.readers.account import checked, reasons, row
from tests.shared import shared

LM_V100 = {1: 109.16661771207029, 2: 185.72383101933428, 8: 698.773292956699}


def lines(*rows: tuple[object, ...]) -> bytes:
    return "".join("\t".join(map(str, cells)) + "\n" for cells in rows).encode()


def ten(
    model: str = "LM (batch size 5)",
    steps: object = 1000,
    gpus: object = 1,
    weight: object = 1,
    slo: object = "-1.000000",
    at: object = 0,
) -> tuple[object, ...]:
    return (
        model,
        "python3 main.py --cuda --data %s/wikitext2",
        "language_modeling",
        "--steps",
        1,
        steps,
        gpus,
        weight,
        slo,
        at,
    )


def test_ten_columns() -> None:
    got = checked(
        lines(ten(at=7), ten(gpus=2, weight=5, slo="1.200000", at=10.5), ten("A3C", gpus=1, at=20))
    )
    assert (got.fmt, got.read, got.used, got.counts()) == ("gavel", 3, 3, [])
    first, second, third = (row(got, str(at)) for at in range(3))
    assert (
        first["model"],
        first["batch_size"],
        first["num_gpus"],
        first["total_steps"],
        first["priority"],
    ) == ("LM", 5, 1, 1000, 1)
    assert (first["submit_time_s"], first["gpu_type"]) == (0, "v100")
    assert first["duration_s"] == pytest.approx(1000 / LM_V100[1])
    assert isnan(first["deadline_s"])
    # 1.2 times the duration on a V100, counted from the arrival, which is 3.5 s after the first.
    assert (second["priority"], second["submit_time_s"]) == (5, 3.5)
    assert second["deadline_s"] == pytest.approx(3.5 + 1.2 * 1000 / LM_V100[2])
    assert (third["model"], isnan(third["batch_size"])) == ("A3C", True)
    assert any("1000" not in guess and "V100" in guess for guess in got.guesses)


def test_seven_and_six_columns_and_the_batch_size_of_a_command() -> None:
    seven = checked(
        lines(("LM (batch size 5)", "cd %s && python3 main.py", "--steps", 1, 500, "12.000000", 2))
    )
    assert (seven.fmt, row(seven, "0")["num_gpus"], row(seven, "0")["duration_s"]) == (
        "gavel",
        2,
        pytest.approx(500 / LM_V100[2]),
    )
    six = checked(
        lines(
            (
                "ResNet-50",
                "python3 main.py -j 4 -a resnet50 -b 64 /data",
                "--num_minibatches",
                64,
                0,
                1,
            ),
            ("Transformer", "python3 train.py -batch_size 32", "-step", 67, 1, 1),
            ("LM", "python3 main.py", "--steps", 10, 2, 1),
        )
    )
    assert list(six.trace.frame["batch_size"]) == [64, 32, 20]
    assert row(six, "0")["duration_s"] == pytest.approx(64 / 4.394774823323071)
    assert reasons(six) == {
        "no batch size is given: the median of the measured sizes is assumed": 1
    }


def test_twelve_columns_state_their_durations() -> None:
    cells = (
        "LM (batch size 10)",
        "python3 main.py",
        "language_modeling",
        "--steps",
        1,
        134583,
        1,
        "gns",
        1,
        "-1.000000",
        1418,
        0,
    )
    got = checked(lines(cells, (*cells[:7], "static", *cells[8:])))
    assert (got.fmt, list(got.trace.frame["duration_s"]), row(got, "0")["total_steps"]) == (
        "gavel",
        [1418, 1418],
        134583,
    )
    assert any(
        guess.startswith("Some jobs change their batch size in training") and "(1)" in guess
        for guess in got.guesses
    )
    steady = checked(lines((*cells[:7], "static", *cells[8:])))
    assert not any("batch size in training" in guess for guess in steady.guesses)


def test_what_was_not_measured_is_assumed_and_counted() -> None:
    got = checked(
        lines(
            ten(gpus=16),
            ten("LM (batch size 7)"),
            ten("bert (batch size 32)"),
            ten("Recommendation (batch size 512)", gpus=4),
        )
    )
    assert got.used == 4
    assert reasons(got) == {
        "the model is not in Gavel's table: the median throughput is assumed": 1,
        "this number of GPUs was not measured: the throughput per GPU of fewer GPUs is used": 2,
        "this batch size was not measured: the throughput of the nearest size is used": 1,
    }
    assert row(got, "0")["duration_s"] == pytest.approx(1000 / (2 * LM_V100[8]))
    assert (row(got, "1")["batch_size"], row(got, "1")["duration_s"]) == (
        7,
        pytest.approx(1000 / LM_V100[1]),
    )
    usual = np.median(
        [
            measured.together
            for key, measured in built_in("simulation").rows.items()
            if (key.gpus, key.gpu_type) == (1, "v100")
        ]
    )
    assert any("total_steps count" in guess for guess in got.guesses)
    assert (row(got, "2")["model"], row(got, "2")["duration_s"]) == (
        "bert",
        pytest.approx(1000 / usual),
    )


def test_broken_rows_are_dropped_for_a_reason() -> None:
    good = ten()
    got = checked(
        lines(
            good,
            ten(steps="many"),
            ten(gpus="two"),
            ten(at="later"),
            good[:6],
            (*good, "more"),
            ten(steps=0),
            ten(gpus=0),
            ten(gpus=1.5),
            ten(at=9),
        )
    )
    assert reasons(got) == {
        "the duration is missing or cannot be read": 1,
        "no GPU: a CPU job": 1,
        "the GPU count is missing or cannot be read": 1,
        "the submission time is missing or cannot be read": 2,
        "the row has fewer than 10 fields": 1,
        "the duration is 0: set to 1 s": 1,
        "total_steps is below 1: treated as missing": 1,
        "the GPU count is a fraction: rounded up": 1,
    }
    assert list(got.trace.frame["job_id"]) == ["0", "6", "8", "9"]


def test_a_damaged_first_row_is_dropped_like_any_other() -> None:
    for damaged in (ten(steps="many"), ten(at="later"), ten(weight="")):
        got = checked(lines(damaged, ten(at=9)))
        assert (got.fmt, got.read) == ("gavel", 2)
    assert reasons(checked(lines(ten(steps="many"), ten(at=9)))) == {
        "the duration is missing or cannot be read": 1
    }
    assert peek(lines(ten(steps="many", at="later"))).fmt != "gavel"


def test_the_shape_of_a_file_does_not_matter() -> None:
    body = lines(ten(), ten(gpus=2, at=60))
    plain = read(body, name="x").trace.digest
    for other in (
        b"\xef\xbb\xbf" + body,
        body.replace(b"\n", b"\r\n"),
        gzip.compress(body),
        b"\n\n" + body,
        body.rstrip(b"\n"),
    ):
        assert checked(other).trace.digest == plain
    shown = peek(body)
    assert (shown.fmt, shown.columns) == ("gavel", ())


@pytest.mark.parametrize(
    "body",
    [
        # a header, so a table to be mapped
        "job_type\tcommand\tnum_steps_arg\ttotal_steps\tarrival_time\tscale_factor\nLM\tx\t--steps\t10\t2\t1\n",
        "1\t2\t3\t4\t5\t6\n",
        "LM\tx\t--steps\tmany\t2\t1\n",
        "LM,x,--steps,10,2,1\n",
        "LM\tx\t--steps\t2\t10\t0\t1\n",
    ],
)
def test_other_tables_are_not_taken_for_one(body: str) -> None:
    assert peek(body.encode()).fmt != "gavel"


def test_a_format_that_does_not_fit_is_refused() -> None:
    with pytest.raises(TraceError, match="this file is not Gavel"):
        read(b"a,b\n1,2\n", name="x", fmt="gavel")


def test_a_trace_survives_the_native_schema() -> None:
    trace = checked(lines(ten(), ten("A3C", at=3.25, slo="2.0", weight=5), ten(gpus=4, at=9))).trace
    again = checked(trace.frame.to_csv(index=False).encode())
    assert (again.fmt, again.trace.digest) == ("native", trace.digest)


LIST = "trace,job_id,model,batch_size,scale_factor,total_steps,arrival_time_s\n"


def test_the_list_of_the_physical_experiments() -> None:
    one = checked((LIST + "a,0,LM,5,1,1000,0\na,1,A3C,,1,10,5\n").encode())
    assert (one.fmt, list(one.trace.frame["job_id"]), one.warnings) == (
        "gavel-list",
        ["0", "1"],
        (),
    )
    assert row(one, "0")["duration_s"] == pytest.approx(1000 / LM_V100[1])
    two = checked((LIST + "a,0,LM,5,1,1000,0\nb,0,LM,5,1,1000,3\n").encode())
    assert (list(two.trace.frame["job_id"]), list(two.trace.frame["vc"])) == (
        ["a/0", "b/0"],
        ["a", "b"],
    )
    assert two.warnings == (
        "The file holds several traces, read as one; each is a separate virtual cluster (vc).",
    )


MORE = "this number of GPUs was not measured: the throughput per GPU of fewer GPUs is used"
FILES = [
    ("traces/gavel/artifact_evaluation.trace", 15, {}),
    ("traces/gavel/max_min_fairness.trace", 96, {}),
    ("traces/gavel/minimize_makespan.trace", 100, {}),
    ("traces/gavel/small_test.trace", 20, {}),
    ("traces/gavel/msr_seed0_103959.trace", 986, {MORE: 125}),
    ("traces/gavel/msr_seed0_e13805.trace", 607, {MORE: 103}),
    ("traces/gavel/msr_seed0_23dbec.trace", 9, {MORE: 1}),
    (
        "traces/gavel/old_msr_7_6columns_first300.trace",
        300,
        {
            "no batch size is given: the median of the measured sizes is assumed": 180,
            "the duration is 0: set to 1 s": 19,
            "total_steps is below 1: treated as missing": 19,
        },
    ),
    ("traces/shockwave/120_0.2_5_100_40_25.trace", 120, {}),
    ("traces/shockwave/220_0.2_5_100_25_4.trace", 220, {}),
    ("data/gavel_physical_traces.csv", 211, {}),
]


@cache
def published(name: str) -> Import:
    return checked(shared(name))


@pytest.mark.parametrize(
    ("name", "jobs", "counted"), FILES, ids=[Path(name).stem for name, *_ in FILES]
)
def test_published_files(name: str, jobs: int, counted: dict[str, int]) -> None:
    got = published(name)
    fmt = "gavel-list" if name.endswith(".csv") else "gavel"
    assert (got.fmt, got.read, got.used, reasons(got)) == (fmt, jobs, jobs, counted)
    assert set(got.trace.frame["gpu_type"]) == {"v100"}
    # With a stand-in for odd gang sizes every one of them can be simulated.
    model = Profiled(stand_in="relative").bind(got.trace, Cluster.parse("4x32:v100,4x32:p100"))
    assert (model.work() > 0).all()
    assert (model.fastest() > 0).all()


def hours(got: Import) -> float:
    return float(got.trace.gpu_seconds / 3600)


def test_published_workloads_have_their_published_size() -> None:
    makespan, fairness = (
        published(f"traces/gavel/{name}.trace")
        for name in ("minimize_makespan", "max_min_fairness")
    )
    assert hours(makespan) == pytest.approx(601, abs=0.5)
    assert hours(fairness) == pytest.approx(393, abs=0.5)
    late = fairness.trace.numbers("submit_time_s")[36:]
    assert np.diff(late, prepend=0).mean() == pytest.approx(772, abs=1)
    # Their work is their iterations, whatever the duration.
    assert (
        Profiled().bind(makespan.trace, Cluster.parse("8x1:v100")).work().tolist()
        == makespan.trace.numbers("total_steps").tolist()
    )


def test_the_list_holds_the_same_jobs_as_the_traces() -> None:
    listed = published("data/gavel_physical_traces.csv").trace.frame
    for name in ("minimize_makespan", "max_min_fairness", "artifact_evaluation"):
        own = published(f"traces/gavel/{name}.trace").trace.frame
        same = listed[listed["vc"] == name]
        for column in ("submit_time_s", "num_gpus", "duration_s", "batch_size", "total_steps"):
            assert same[column].to_numpy(float) == pytest.approx(
                own[column].to_numpy(float), nan_ok=True
            )


def test_durations_follow_from_the_table_for_every_job() -> None:
    path = shared("traces/gavel/max_min_fairness.trace")
    got, table = published("traces/gavel/max_min_fairness.trace"), built_in("simulation")
    with path.open(encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    for job, cells in zip(got.trace.frame.itertuples(), rows, strict=True):
        measured = table.find(
            job.model.lower().replace("-", ""), job.batch_size, int(cells[6]), "v100"
        )
        assert measured is not None
        assert job.duration_s == pytest.approx(int(cells[5]) / measured.together)

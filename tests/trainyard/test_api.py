"""The public face: what a notebook or a script needs, from one import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import trainyard as ty

HEAVY = ("pulp", "highspy", "scipy", "sklearn", "streamlit", "plotly", "psutil", "duckdb")


JOBS = pd.DataFrame(
    {
        "job_id": ["a", "b", "c"],
        "submit_time_s": [0.0, 10.0, 20.0],
        "num_gpus": [1, 2, 1],
        "duration_s": [100.0, 50.0, 10.0],
    }
)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> ty.Comparison:
    store = tmp_path_factory.mktemp("store")
    return ty.compare(JOBS, "1x2:v100", ["fifo:backfill=none", "easy", "recorded"], store=store)


def test_a_comparison_by_hand(study: ty.Comparison) -> None:
    # On two GPUs b (2) waits for a until 100 and runs to 150. Under FIFO c comes after it, at 150;
    # EASY starts c at 20, because it ends before 100.
    assert study.jobs("fifo:backfill=none")["finish_s"].tolist() == [100.0, 150.0, 160.0]
    assert study.jobs("easy")["finish_s"].tolist() == [100.0, 150.0, 30.0]
    # The table's name of a policy is one, too.
    title = study.table().index[1]
    assert study.jobs(title).equals(study.jobs("easy"))
    means = study.table()["jct_mean_s"]["value"].tolist()
    assert means == pytest.approx([(100 + 140 + 140) / 3, (100 + 140 + 10) / 3])
    # Under FIFO c waits from 20 to 150; under EASY b waits longest, from 10 to 100.
    assert study.table()["wait_max_s"]["value"].tolist() == [130.0, 90.0]
    assert study.table()["waits_over_day"]["value"].tolist() == [0.0, 0.0]


@pytest.mark.usefixtures("fast_engine")
def test_either_engine_makes_the_comparison(study: ty.Comparison, tmp_path: Path) -> None:
    assert study.engines == {"FIFO": "kernel", "EASY backfilling": "kernel"}
    again = ty.compare(JOBS, "1x2:v100", ["easy"], store=tmp_path, engine="fast")
    assert again.engines == {"EASY backfilling": "fast"}
    assert again.jobs("easy")["finish_s"].tolist() == study.jobs("easy")["finish_s"].tolist()


def test_why_a_job_waited(study: ty.Comparison) -> None:
    assert study.why("fifo:backfill=none", "a") == ()
    said, then = study.why("fifo:backfill=none", "c")
    assert said.startswith("1 job was ahead by submission; the first (job b) needs 2 GPUs")
    assert then == "First by submission; this job needs 1 GPU and no GPU was free (50 s)."
    with pytest.raises(ty.TrainyardError, match="There is no job zz"):
        study.why("easy", "zz")


def test_who_cannot_run_is_skipped_with_the_reason(study: ty.Comparison) -> None:
    [(spec, why)] = study.skipped.items()
    assert spec.name == "recorded"
    assert "no recorded start times" in why
    with pytest.raises(ty.TrainyardError, match="recorded has no result"):
        study.jobs("recorded")


def test_a_policy_with_a_file_has_the_name_that_messages_give_it(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("NodeName=n CPUs=8 Gres=gpu:v100:2\nPartitionName=all\n")
    spec = f"slurm:conf={tmp_path / 'slurm.conf'}"
    jobs = pd.DataFrame(
        {"job_id": ["a"], "submit_time_s": [0.0], "num_gpus": [1], "duration_s": [10.0]}
    )
    made = ty.compare(jobs, "1x2:v100", [spec], store=tmp_path / "store")
    with pytest.raises(ty.TrainyardError, match="Choose one of slurm:conf=file-") as caught:
        made.jobs("fifo")
    name = str(caught.value).partition("Choose one of ")[2].rstrip(".")
    assert made.jobs(name).equals(made.jobs(spec))


def test_figures_by_name(study: ty.Comparison) -> None:
    for name in ("queue", "gpus", "jct_cdf"):
        assert len(study.figure(name).data) > 0
    with pytest.raises(ty.TrainyardError, match=r"There is no figure 'pie' here. There are queue"):
        study.figure("pie")


def test_files_that_can_be_passed_on(study: ty.Comparison, tmp_path: Path) -> None:
    page = study.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert study.headline.split(".")[0] in page
    assert study.save(tmp_path / "study.zip").read_bytes()[:2] == b"PK"


def test_a_notebook_shows_headline_and_table(study: ty.Comparison) -> None:
    shown = study._repr_html_()
    assert shown.startswith("<p><b>")
    assert "jct_mean_s" in shown


def test_traces_say_what_they_are(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(
        "job_id,submit_time_s,num_gpus,duration_s\na,0,1,3600\nb,3600,3,7200\nc,x,1,5\n"
    )
    trace = ty.read_trace(file)
    found = trace.summary()
    assert (found["jobs"], found["left out"], found["most GPUs"]) == (2, 1, 3)
    assert found["GPU-hours"] == 1 + 3 * 2
    assert trace.issues["job_id"].tolist() == ["c"]
    assert list(trace.to_frame()["job_id"]) == ["a", "b"]


def test_a_fitted_cluster_holds_the_widest_job_and_the_load() -> None:
    # 9 jobs of 8 GPUs and an hour, one each hour: 72 GPU-hours over 8 hours at a load of 0.5.
    frame = pd.DataFrame(
        {
            "job_id": [f"j{at}" for at in range(9)],
            "submit_time_s": [3600.0 * at for at in range(9)],
            "num_gpus": 8,
            "duration_s": 3600.0,
        }
    )
    trace = ty.read_trace(frame)
    assert ty.fit_cluster(trace, load=0.5).gpus == 24  # 72 / 8 / 0.5 = 18, in nodes of 8
    # One job of 64 GPUs: 64 / 0.5 = 128 of them for as long as it runs.
    assert ty.fit_cluster(ty.read_trace(frame.assign(num_gpus=64).head(1)), load=0.5).gpus == 128
    assert ty.fit_cluster(ty.read_trace(frame.assign(num_gpus=0), cpu_jobs="keep")).gpus == 8
    with pytest.raises(ty.TrainyardError, match="load = 0 must be above 0"):
        ty.fit_cluster(trace, load=0)


# Three jobs, 20 s apart, of 2 GPUs, for 60 s, 120 s and an hour.
RUNS_S = [60.0, 120.0, 3600.0]
EVERY_20_S = pd.date_range("2026-03-02 08:00", periods=3, freq="20s")


def _frame(**columns: object) -> pd.DataFrame:
    cells = {"job_id": ["a", "b", "c"], "submit_time_s": [0.0, 20.0, 40.0], "num_gpus": 2}
    return pd.DataFrame({**cells, "duration_s": RUNS_S, **columns})


def _times(frame: pd.DataFrame, **reading: object) -> tuple[list[float], list[float]]:
    jobs = ty.read_trace(frame, **reading).to_frame()
    return jobs["submit_time_s"].tolist(), jobs["duration_s"].tolist()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("chosen", [{}, {"time_unit": "ms", "duration_unit": "h"}])
def test_dates_and_spans_of_a_frame_mean_what_their_type_says(
    unit: str, chosen: dict[str, str]
) -> None:
    frame = _frame(
        submit_time_s=EVERY_20_S.astype(f"datetime64[{unit}]"),
        duration_s=pd.to_timedelta(RUNS_S, unit="s").astype(f"timedelta64[{unit}]"),
    )
    assert _times(frame, **chosen) == ([0, 20, 40], RUNS_S)
    since = pd.to_timedelta([0, 20, 40], unit="s")
    assert _times(frame.assign(submit_time_s=since), **chosen) == ([0, 20, 40], RUNS_S)
    other = frame.rename(columns={"submit_time_s": "submitted", "duration_s": "run time"})
    assert _times(other, **chosen) == ([0, 20, 40], RUNS_S)
    assert _times(other.assign(submitted=since), **chosen) == ([0, 20, 40], RUNS_S)


def test_a_frame_heeds_mapping_and_units() -> None:
    frame = _frame().rename(columns={"num_gpus": "cards", "duration_s": "took"})
    frame = frame.assign(cards=[1, 2, 4], submit_time_s=[0, 20_000, 40_000], took=[1.0, 2.0, 60.0])
    source = ty.read_trace(
        frame,
        mapping={"num_gpus": "cards", "duration_s": "took"},
        time_unit="ms",
        duration_unit="min",
    )
    jobs = source.to_frame()
    assert jobs["num_gpus"].tolist() == [1, 2, 4]
    assert jobs["submit_time_s"].tolist() == [0, 20, 40]
    assert jobs["duration_s"].tolist() == RUNS_S


def test_a_frame_is_read_as_a_file_of_it(tmp_path: Path) -> None:
    frame = _frame(num_gpus=[2, -1, 1], job_id=["a", 7, None])
    frame.astype({"job_id": "str"}).to_csv(tmp_path / "jobs.csv", index=False)
    read, file = ty.read_trace(frame), ty.read_trace(tmp_path / "jobs.csv")
    assert read.issues.equals(file.issues)
    assert read.issues["reason"].tolist() == [
        "the GPU count is negative",
        "the id is missing: named after the row",
    ]
    assert read.trace.digest == file.trace.digest
    named = ty.read_trace(_frame().set_index("job_id"))
    assert named.trace.digest == ty.read_trace(_frame()).trace.digest


def test_an_index_named_like_a_column_gives_way_to_it() -> None:
    frame = _frame(job_id=["a", "b", "c"])
    frame.index = pd.Index([7, 8, 9], name="job_id")
    assert ty.read_trace(frame).to_frame()["job_id"].tolist() == ["a", "b", "c"]


def test_a_frame_of_a_trace_is_that_trace() -> None:
    week = ty.read_trace("sample:week")
    assert ty.read_trace(week.to_frame(), cpu_jobs="keep").trace.digest == week.trace.digest


def test_a_comparison_says_how_many_jobs_have_no_run_time(tmp_path: Path) -> None:
    states = ["completed", "running", "pending"]
    source = ty.read_trace(_frame(status=states))
    assert source.unended["state"].tolist() == ["running", "pending"]
    assert source.unended["job_id"].tolist() == ["b", "c"]
    made = ty.compare(source, "1x2:v100", ["fifo", "sjf"], store=tmp_path)
    told = "Left out, because they have no run time yet: 1 pending and 1 running jobs of the file."
    assert told in made.assumptions
    ended = ty.compare(_frame(status="completed"), "1x2:v100", ["fifo", "sjf"], store=tmp_path)
    assert "no run time" not in ended.assumptions


@pytest.mark.parametrize("source", [_frame(), "sample:tiny"])
def test_unknown_choices_of_reading_are_refused(source: object) -> None:
    with pytest.raises(ty.TrainyardError, match="Reading a trace has no choice 'nonsense'"):
        ty.read_trace(source, nonsense=3)


def test_clusters_are_read(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("NodeName=n[1-3] Gres=gpu:a100:4 CPUs=8\n")
    assert ty.read_cluster(conf).gpus == 12
    with pytest.raises(ty.TrainyardError, match="cannot be read"):
        ty.read_cluster(tmp_path / "nowhere.conf")


def test_policies_with_the_reason_why_not() -> None:
    jobs = ty.read_trace("sample:tiny").to_frame().drop(columns="start_time_s", errors="ignore")
    listed = ty.policies(ty.read_trace(jobs))
    assert listed.loc["fifo", "reason"] == ""
    assert listed.loc["dlrover", "title"] == "DLRover"
    assert "no recorded start times" in listed.loc["recorded", "reason"]


@pytest.mark.parametrize(
    ("allocators", "sentence"), [([], "No policy is named"), (["nobody"], "no policy 'nobody'")]
)
def test_bad_input_is_one_sentence(allocators: list[str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ty.TrainyardError, match=sentence):
        ty.compare("sample:tiny", None, allocators, store=tmp_path)


@pytest.mark.parametrize(
    "statement",
    ["import trainyard", "import trainyard; trainyard.Cluster", "import allocators.queue.srtf"],
)
def test_nothing_heavy_is_loaded_before_it_is_used(statement: str) -> None:
    code = f"import sys; {statement}; print([name for name in {HEAVY} if name in sys.modules])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert len(ty.__all__) <= 20
    assert all(getattr(ty, name) for name in ty.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ty.nothing

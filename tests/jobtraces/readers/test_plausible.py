"""Every rule of the plausibility gate: what it says, what mends it, and that it is silent on a
sound table.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jobtraces import Import, ReadOptions, read
from jobtraces.readers.draft import Report
from jobtraces.readers.plausible import KEEP, DataReview, check_jobs_together
from sim.errors import ParameterError, TraceError
from tests.counting import count_steps
from tests.jobtraces.readers.account import checked, reasons
from tests.shared import shared

DAY = 86_400.0


def sound(jobs: int = 240) -> pd.DataFrame:
    """Return a table about which there is nothing to ask."""
    at = np.arange(jobs)
    run = 60.0 + at * 7 % 9973 + 0.5 * (at % 2)
    start = at * 311.0 + 13
    return pd.DataFrame(
        {
            "job_id": [f"j{one}" for one in at],
            "submit_time_s": at * 311.0,
            "num_gpus": 2.0 ** (at % 4),
            "duration_s": run,
            "start_time_s": start,
            "end_time_s": start + run,
            "user": [f"u{one % 7}" for one in at],
            "status": "completed",
        }
    )


def bare(jobs: int = 240) -> pd.DataFrame:
    return sound(jobs).drop(columns=["start_time_s", "end_time_s"])


def taken(table: pd.DataFrame, **answers: str) -> Import:
    return checked(table.to_csv(index=False).encode(), options=ReadOptions(answers=answers))


def asked(got: Import) -> dict[str, str]:
    return {question.id: question.text for question in got.questions}


def test_nothing_is_asked_about_a_sound_table() -> None:
    got = taken(sound())
    assert (asked(got), got.warnings, got.offers, got.trace.doubts) == ({}, (), (), ())


def test_milliseconds_are_suspected_by_the_span_and_read_so_on_request() -> None:
    table = bare().assign(submit_time_s=lambda frame: frame["submit_time_s"] * 1e4)
    got = taken(table)
    assert asked(got) == {"span": "The submissions span 24 years. Are the times milliseconds?"}
    (question,) = got.questions
    assert list(question.options) == ["ms", "window", KEEP]
    assert question.default == KEEP
    assert got.trace.doubts == (("span", question.text),)
    mended = taken(table, span="ms")
    assert asked(mended) == {}
    assert mended.trace.span_s == pytest.approx(239 * 3110.0)
    assert mended.guesses[-1] == f"{question.text} Answered: they are milliseconds."
    overridden = taken(table, span=KEEP)
    assert overridden.questions == ()
    assert overridden.warnings == (f"{question.text} Answered: the times are right.",)
    assert overridden.trace.doubts == got.trace.doubts


def test_durations_from_start_to_end_follow_the_unit_of_the_times() -> None:
    table = sound()
    for column in ("submit_time_s", "start_time_s", "end_time_s", "duration_s"):
        table[column] = table[column] * 1e4
    assert list(asked(taken(table))) == ["span"]
    mended = taken(table, span="ms")
    assert asked(mended) == {}
    assert mended.trace.numbers("duration_s")[0] == 600.0
    assert list(asked(taken(table, span=KEEP))) == ["thousand"]


def test_a_stray_clock_is_cut_off_on_request() -> None:
    table = bare()
    table.loc[0, "submit_time_s"] = -8 * 365.25 * DAY
    assert asked(taken(table)) == {"span": "The submissions span 8.0 years."}
    mended = taken(table, span="window")
    assert mended.used == 239
    assert reasons(mended) == {
        "left out as answered: more than 2.5 years from the median submission": 1
    }


def test_whole_thousands_are_suspected_to_be_milliseconds() -> None:
    table = bare().assign(
        duration_s=lambda frame: np.floor(frame["duration_s"]) * 1000, time_limit_s=9e6
    )
    told = "100% of the durations are multiples of 1000, such as 60,000 s. Are they milliseconds?"
    assert asked(taken(table)) == {"thousand": told}
    mended = taken(table, thousand="ms").trace
    assert mended.numbers("duration_s")[:2].tolist() == [60.0, 67.0]
    assert mended.numbers("time_limit_s")[0] == 9000
    assert asked(taken(table.head(49))) == {}


def test_days_of_running_are_suspected_to_be_another_unit() -> None:
    table = bare().assign(duration_s=lambda frame: 6e6 + frame["duration_s"])
    got = taken(table)
    assert asked(got) == {"long": "Half of the jobs run for 69 days or more. Is the unit right?"}
    assert list(got.questions[0].options) == ["ms", KEEP]
    assert taken(table, long="ms").trace.numbers("duration_s")[0] == pytest.approx(6000.06)


def test_a_unit_that_the_user_chose_may_be_seconds_after_all() -> None:
    table = bare().assign(duration_s=lambda frame: frame["duration_s"] * 2)
    data = table.to_csv(index=False).encode()
    got = read(data, options=ReadOptions(duration_unit="h"))
    assert list(got.questions[0].options) == ["s", "ms", KEEP]
    mended = read(data, options=ReadOptions(duration_unit="h", answers={"long": "s"}))
    assert mended.trace.numbers("duration_s")[0] == pytest.approx(120.0)


def test_single_rows_of_more_than_five_years_can_be_left_out() -> None:
    table = bare()
    table.loc[[4, 5], "duration_s"] = [2e8, 2.1e8]
    table.loc[[4, 5], "num_gpus"] = 1
    got = taken(table)
    assert "2 of 240 jobs run for more than 5 years." in got.warnings
    assert [offer.id for offer in got.offers] == ["long_rows"]
    left = taken(table, long_rows="leave_out")
    assert (left.used, left.warnings) == (238, ())
    assert reasons(left) == {"left out as answered: it runs for more than 5 years": 2}


def test_a_job_with_most_of_the_gpu_time_is_named() -> None:
    table = bare()
    table.loc[9, ["num_gpus", "duration_s"]] = [4096, 4e6]
    told = "Job j9 alone asks for 4,096 GPUs for 46 days: 100% of all GPU time."
    assert asked(taken(table)) == {"work": told}
    left = taken(table, work="leave_out")
    assert left.used == 239
    assert left.trace.doubts == ()


def test_durations_that_contradict_start_and_end_are_shown() -> None:
    table = sound()
    table.loc[:2, "duration_s"] += 1000
    text = asked(taken(table))["contradiction"]
    assert text == (
        "The duration of 3 of 240 jobs is not the time from start to end (j0: 1060 s and 60 s;"
        " j1: 1067.5 s and 67.5 s; j2: 1074 s and 74 s). Which is right?"
    )
    assert taken(table, contradiction="end").trace.numbers("duration_s")[0] == 60.0
    table.loc[1:2, "duration_s"] -= 1000
    assert asked(taken(table)) == {}


def test_several_attempts_are_no_contradiction() -> None:
    table = sound().assign(duration_s=5.0 + np.arange(240))
    for attempts, ids in ((True, set()), (False, {"contradiction"})):
        report = Report(len(table))
        check_jobs_together(table, attempts, DataReview(report, {}))
        assert {question.id for question in report.questions} == ids


def test_starts_before_submissions_are_said_and_then_asked_about() -> None:
    table = sound()
    table.loc[:1, "start_time_s"] -= 1000
    table.loc[:1, "end_time_s"] -= 1000
    got = taken(table)
    assert got.warnings == (
        "2 of 240 jobs start before they are submitted. Their starts are moved to the submission.",
    )
    table.loc[:19, "start_time_s"] = table["submit_time_s"] - np.arange(240) * 100 - 1
    table.loc[:19, "end_time_s"] = table["start_time_s"] + table["duration_s"]
    told = "20 of 240 jobs start before they are submitted. Is the submission column right?"
    assert asked(taken(table)) == {"early": told}
    assert not taken(table, early="leave_out").trace.has("start_time_s")


def test_two_zones_are_recognised_and_brought_together() -> None:
    table = sound()
    table["start_time_s"] -= 7200
    table["end_time_s"] -= 7200
    assert asked(taken(table)) == {
        "early": "240 of 240 jobs start before they are submitted, nearly all by 2 hours. Are the"
        " two in different time zones?"
    }
    mended = taken(table, early="shift").trace
    assert set(mended.numbers("start_time_s") - mended.numbers("submit_time_s")) == {13.0}


def test_swapped_ends_and_starts_are_put_right_or_left_out() -> None:
    table = sound().drop(columns="duration_s")
    swapped = table["start_time_s"].copy()
    table.loc[:9, "start_time_s"] = table["end_time_s"]
    table.loc[:9, "end_time_s"] = swapped
    got = taken(table)
    assert asked(got) == {
        "reversed": "10 of 240 jobs end before they start, the first by 60 seconds. Are the"
        " columns swapped?"
    }
    assert reasons(got) == {"the end is before the start": 10}
    mended = taken(table, reversed="swap")
    assert mended.trace.numbers("duration_s")[0] == 60.0
    assert mended.used == 240


def test_a_gap_between_two_windows_is_asked_about() -> None:
    table = bare()
    table.loc[100:, "submit_time_s"] += 40 * DAY
    got = taken(table)
    told = (
        "No job is submitted for 40 days of 41 days. Does the file mix two clocks or two periods?"
    )
    assert asked(got) == {"hole": told}
    assert (taken(table, hole="before").used, taken(table, hole="after").used) == (100, 140)


def test_jobs_that_had_not_ended_are_left_out_of_any_table() -> None:
    table = bare()
    table.loc[:9, "status"] = "RUNNING"
    table.loc[10:19, "status"] = "Pending"
    got = taken(table)
    assert reasons(got) == {
        "still running when the trace ends": 10,
        "the job had not started when the trace ends": 10,
    }
    assert (asked(got), got.warnings) == ({}, ())
    kept = read(table.to_csv(index=False).encode(), options=ReadOptions(unfinished="cut"))
    assert kept.used == 230
    again = taken(kept.trace.frame)
    assert again.trace.digest == kept.trace.digest


def test_a_snapshot_is_no_history() -> None:
    table = bare()
    table.loc[:59, "status"] = "running"
    assert taken(table).warnings == (
        "25% of 240 rows had not ended when the file was written. They are dropped unless you"
        " choose to cut them there.",
    )
    table.loc[:149, "status"] = "running"
    assert asked(taken(table)) == {
        "open": "62% of 240 rows had not ended when the file was written. Is it a snapshot of the"
        " queue, not a history?"
    }


def test_per_cent_are_not_taken_for_gpus_without_a_question() -> None:
    table = bare().assign(num_gpus=np.where(np.arange(240) % 3, 100, 25))
    told = "Nearly all GPU counts are multiples of 5, such as 25. Are they percentages?"
    assert asked(taken(table)) == {"percent": told}
    mended = taken(table, percent="percent")
    assert set(asked(mended)) == {"fractions"}
    assert set(mended.trace.numbers("num_gpus")) == {1.0}
    assert asked(taken(table.head(19))) == {}


def test_fractions_that_add_much_work_can_be_left_out() -> None:
    table = bare()
    table.loc[::4, "num_gpus"] = 0.25
    table.loc[::4, "duration_s"] *= 10
    got = taken(table)
    assert list(asked(got)) == ["fractions"]
    # It stands in the question; whoever answers "round up" is told again.
    assert (got.warnings, len(taken(table, fractions=KEEP).warnings)) == ((), 1)
    left = taken(table, fractions="leave_out")
    assert (left.used, left.warnings) == (180, ())
    assert left.load_after_gpu_s == left.load_before_gpu_s


def test_one_duration_for_many_jobs_is_asked_about() -> None:
    table = bare()
    table.loc[:50, "duration_s"] = 86_400
    told = "51 of 240 jobs run for exactly 24 hours. Were they cut off at a time limit?"
    assert asked(taken(table)) == {"same": told}
    assert taken(table, same="leave_out").used == 189
    table.loc[:3, "duration_s"] = 90_000
    assert asked(taken(table)) == {}
    assert asked(taken(bare().assign(num_gpus=8))) == {
        "same_gpus": "All 240 jobs ask for 8 GPUs. Is that the size of a node, not of a job?"
    }
    assert set(taken(bare().assign(num_gpus=8), same_gpus="one").trace.numbers("num_gpus")) == {1}


def test_durations_that_were_cut_in_the_source_are_said() -> None:
    table = bare(1000)
    table.loc[:4, "duration_s"] = 172_800
    told = "5 jobs have exactly the longest duration, 172,800 s: the source cut them off there."
    got = taken(table)
    assert (got.warnings, got.questions) == ((told,), ())
    assert got.trace.doubts == (("cut", told),)
    table.loc[0, "duration_s"] = 100
    assert taken(table).warnings == ()


def test_a_batch_is_said() -> None:
    told = "All jobs are submitted at the same time, so waits are those of a single batch."
    assert taken(bare().assign(submit_time_s=5)).warnings == (told,)


def test_columns_that_name_nobody_are_asked_about() -> None:
    table = bare(1200).drop(columns="user").assign(queue=np.arange(1200) * 3 + 1)
    table = table.rename(columns={"submit_time_s": "submitted"})
    # Such a column is never guessed to be one of groups, so that the user must have chosen it.
    assert asked(taken(table)) == {}
    chosen = ReadOptions(mapping={"vc": "queue"})
    got = read(table.to_csv(index=False).encode(), options=chosen)
    assert asked(got).keys() == {"suspect_vc"}
    assert "holds 1,200 different numbers, such as 1. Is it really a vc?" in str(asked(got))
    assert got.trace.has("vc")
    assert not taken(table, suspect_vc="leave_out").trace.has("vc")


def test_cores_are_not_taken_for_gpus_without_a_question() -> None:
    data = bare().rename(columns={"num_gpus": "cpus"}).to_csv(index=False).encode()
    mapping = {"num_gpus": "cpus"}
    got = read(data, options=ReadOptions(mapping=mapping))
    assert asked(got) == {
        "suspect_gpus": "The GPU counts come from the column cpus. Are they CPU cores?"
    }
    chosen = ReadOptions(mapping=mapping, answers={"suspect_gpus": "cores"}, cpu_jobs="keep")
    mended = read(data, options=chosen).trace
    assert mended.numbers("cpus")[:3].tolist() == [1, 2, 4]
    assert mended.numbers("num_gpus").sum() == 0


def test_rows_that_repeat_others_can_be_left_out() -> None:
    table = bare()
    again = table.head(20).assign(job_id=[f"again{one}" for one in range(20)])
    doubled = pd.concat([table, again])
    told = "20 of 260 jobs repeat the submission, duration, GPUs and user of another job."
    assert taken(doubled).warnings == (told,)
    left = taken(doubled, twice="leave_out")
    assert (left.used, left.warnings) == (240, ())
    # Rows with the id of another are left out for that alone.
    assert taken(pd.concat([table, table.head(20)])).warnings == ()
    others = again.assign(user="somebody else")
    assert taken(pd.concat([table, others])).warnings == ()


def test_ids_that_a_spreadsheet_rounded_are_asked_about() -> None:
    table = bare().astype({"job_id": "str"})
    table.loc[:2, "job_id"] = "7.01419E+13"
    got = taken(table)
    assert asked(got) == {
        "collide": "2 ids repeat and are rounded, such as 7.01419E+13: a spreadsheet may have"
        " merged several ids. Are they different jobs?"
    }
    assert (got.used, taken(table, collide="keep").used) == (238, 240)


def test_one_fault_is_one_question() -> None:
    collided = bare().assign(job_id=[f"{7 + at // 40}.0E+13" for at in range(240)])
    assert list(asked(taken(collided))) == ["collide"]
    assert list(asked(taken(collided, collide=KEEP))) == ["left"]
    waiting = bare()
    waiting.loc[:149, "status"] = "PENDING"
    assert list(asked(taken(waiting))) == ["open"]


def test_a_file_of_which_much_is_left_out_is_asked_about() -> None:
    table = bare().astype({"duration_s": "str"})
    table.loc[:60, "duration_s"] = "soon"
    told = (
        "61 of 240 rows are dropped, most because the duration is missing or cannot be read. Are"
        " units, dates and columns read correctly?"
    )
    assert asked(taken(table)) == {"left": told}
    with pytest.raises(TraceError, match=r"Choose other units or columns, or correct the file\."):
        taken(table, left="stop")
    without = bare()
    without.loc[:100, "num_gpus"] = 0
    assert asked(taken(without)) == {}


def test_an_answer_that_is_not_offered_is_refused() -> None:
    table = bare().assign(num_gpus=8)
    with pytest.raises(ParameterError, match="same_gpus = 'two' is not one of one, go_on"):
        taken(table, same_gpus="two")


def test_milliseconds_of_a_published_trace_are_never_read_as_seconds_unasked() -> None:
    path = shared("traces/muri/trace3.csv")
    got = read(path, fmt="table")
    assert set(asked(got)) == {"span", "duration_unit", "left"}
    answers = {"duration_unit": "ms", "span": "ms"}
    mended = read(path, fmt="table", options=ReadOptions(answers=answers))
    right = read(path).trace
    assert mended.questions == ()
    assert mended.trace.span_s == right.span_s
    assert mended.trace.gpu_seconds == pytest.approx(right.gpu_seconds)


EXPECTED = {
    "openb_pod_list_default.csv": {"fractions"},
    "spot_longest200.csv": {"long", "same"},
    "tf_job.csv": {"duration_unit"},
}


@pytest.mark.slow
def test_real_files_raise_no_false_question() -> None:
    found = {}
    root = shared("traces")
    for path in sorted(root.rglob("*")):
        if path.suffix not in {".csv", ".json", ".swf", ".trace", ".log", ".txt"}:
            continue
        try:
            ids = set(asked(read(path)))
        except TraceError:
            continue  # descriptions of clusters, and files that need another one
        if ids:
            found[path.name] = ids
    assert {name: ids for name, ids in found.items() if EXPECTED.get(name) != ids} == {}


@pytest.mark.slow
def test_samples_raise_no_question() -> None:
    for path in sorted((Path(__file__).parents[3] / "sample_traces").glob("*.parquet")):
        got = read(path)
        assert (asked(got), got.trace.doubts) == ({}, ()), path.name


def test_ten_times_the_jobs_are_checked_with_as_many_steps() -> None:
    small, large = (
        count_steps(
            lambda table=table: check_jobs_together(
                table, False, DataReview(Report(len(table)), {})
            )
        )
        for table in (sound(1000), sound(10_000))
    )
    assert large <= 1.1 * small, (small, large)


def test_formats_fill_what_they_know_beyond_times_and_sizes() -> None:
    def frame(path: str) -> pd.DataFrame:
        return read(shared(path)).trace.frame

    queue = frame("traces/slurm_json/25.11_slurm-jobs.json")
    facts = ["account", "qos", "node_list", "nodes", "nice", "requeues"]
    assert queue[facts].iloc[0].tolist() == ["optic", "normal", "gpu1", 1, 0, 0]
    types = frame("traces/hydra_hetero_deadline/20_ddl.csv")["durations_by_type"]
    assert types[0] == "a100=1020.0|v100=1540.0|gtx2080ti=2595.0"
    pods = frame("traces/alibaba_gpu_v2023_openb/openb_pod_list_default.csv")
    assert pods["gpu_fraction"].dropna().iloc[0] == 0.46
    assert set(pods.loc[pods["num_gpus"] > 1, "gpu_fraction"].dropna()) == set()


def test_an_infinite_start_is_taken_as_not_given() -> None:
    rows = "".join(f"j{at},{at * 60},1,{100 + at},-inf\n" for at in range(60))
    header = "job_id,submit_time_s,num_gpus,duration_s,start_time_s\n"
    found = read((header + rows).encode())
    assert found.used == 60
    assert not found.trace.has("start_time_s")
    assert found.counts() == [
        ("altered", "start_time_s is negative or infinite: treated as missing", 60)
    ]

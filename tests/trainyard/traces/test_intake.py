from __future__ import annotations

import gzip
import math
from dataclasses import replace
from pathlib import Path

import pytest

from sim.errors import TraceError
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.traces import intake
from trainyard.traces.sources import load_source

GOOD = b"job_id,submit_time_s,num_gpus,duration_s\na,0,1,600\nb,172800,0.5,1200\n=c,90,4,-20\n"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_file_is_kept_under_its_content(store: Store) -> None:
    taken = intake.store_upload(GOOD, "mine.csv", store)
    source = load_source(taken.spec, store)
    assert len(source.trace) == 2
    assert source.account["file"] == "mine.csv"
    assert (
        source.account["read"],
        source.account["used"],
        source.account["dropped"],
        source.account["altered"],
    ) == (3, 2, 1, 1)
    assert list(taken.issues["action"]) == ["altered", "dropped"]
    assert "'=c" in taken.issues_csv
    assert intake.store_upload(GOOD, "again.csv", store).spec == taken.spec


def test_choices_reach_the_reader(store: Store) -> None:
    other = b"who;when;many;long\na;0;0;10\nb;1;2;20\n"
    mapping = {"submit_time_s": "when", "num_gpus": "many", "duration_s": "long"}
    taken = intake.store_upload(
        other,
        "odd.csv",
        store,
        choices={"mapping": mapping, "cpu_jobs": "keep", "duration_unit": "min"},
    )
    trace = load_source(taken.spec, store).trace
    assert list(trace.frame["duration_s"]) == [600.0, 1200.0]


def test_a_file_that_is_too_large_is_one_sentence(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "UPLOAD_MB", 0)
    with pytest.raises(TraceError, match=r"mine\.csv: .* limit of 0 MB"):
        intake.store_upload(GOOD, "mine.csv", store)


def test_an_upload_may_unpack_to_so_much_only(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "MAX_UPLOAD_BYTES", len(GOOD) - 1)
    for act in (
        lambda: intake.store_upload(gzip.compress(GOOD), "mine.gz", store),
        lambda: intake.peek_upload(gzip.compress(GOOD), "mine.gz"),
    ):
        with pytest.raises(TraceError, match=r"mine\.gz: .* more than the limit of"):
            act()


def test_look_shows_the_beginning_without_keeping_anything(store: Store) -> None:
    found = intake.peek_upload(b"who,when,gpus\na,0,1\n", "odd.csv")
    assert found.columns == ("who", "when", "gpus")
    assert "duration_s" in found.missing
    assert store.traces() == []


def test_a_mapping_must_be_complete_and_unique() -> None:
    good = {"submit_time_s": "a", "num_gpus": "b", "duration_s": "c", "user": ""}
    assert intake.check_mapping(good) == good
    with pytest.raises(TraceError, match="Choose the column of the number of GPUs"):
        intake.check_mapping(good | {"num_gpus": ""})
    with pytest.raises(TraceError, match=r"of the duration, or the columns of start and end\."):
        intake.check_mapping(good | {"duration_s": "", "end_time_s": "d"})
    spans = good | {"duration_s": "", "start_time_s": "c", "end_time_s": "d"}
    assert intake.check_mapping(spans) == spans
    with pytest.raises(TraceError, match="'a' is chosen twice"):
        intake.check_mapping(good | {"user": "a"})


def test_profile_describes_jobs(store: Store) -> None:
    trace = load_source(intake.store_upload(GOOD, "mine.csv", store).spec, store).trace
    facts = intake.profile_trace(trace)
    assert (facts.jobs, facts.days, facts.median_s, facts.users) == (2, 2.0, 900.0, None)
    assert facts.gpu_hours == pytest.approx(0.5)
    assert intake.profile_trace(load_source(TraceSpec("sample:week")).trace).users is not None


def test_a_window_in_days() -> None:
    whole = TraceSpec("sample:week")
    assert intake.span_days(load_source(whole).trace) == pytest.approx(7.0, abs=0.02)
    assert intake.window_days(whole, 7.0) == (0.0, 7.0)
    assert intake.cut_to_window(whole, (0.0, 7.0), 7.0) == whole
    exact = replace(whole, from_s=1000.0)
    assert intake.cut_to_window(exact, intake.window_days(exact, 7.0), 7.0, load=2.0) == replace(
        exact, load=2.0
    )
    cut = intake.cut_to_window(whole, (1.0, 3.0), 7.0, load=2.0, sample=5)
    assert (cut.from_s, cut.to_s, cut.load, cut.sample) == (86_400.0, 259_200.0, 2.0, 5)
    assert intake.window_days(cut, 7.0) == (1.0, 3.0)
    assert intake.cut_to_window(cut, (0.0, 7.0), 7.0, load=1.0, sample=0) == whole
    assert math.isinf(intake.cut_to_window(cut, (1.0, 7.0), 7.0).to_s)


def test_the_account_knows_columns_and_what_became_of_classes_of_rows(store: Store) -> None:
    text = b"who,when,many,seconds\na,0,1,600\nb,60,2,1200\nc,90,0,30\n"
    mapping = {
        "job_id": "who",
        "submit_time_s": "when",
        "num_gpus": "many",
        "duration_s": "seconds",
    }
    found = intake.peek_upload(text, "odd.csv")
    left = intake.store_upload(
        text, "odd.csv", store, choices={"mapping": mapping}, start=found
    ).account
    assert left["columns"] == mapping
    assert (
        intake.describe_columns(left)
        == "job id ← who · submission ← when · GPUs ← many · duration ← seconds"
    )
    assert [(rule.chosen, rule.sentence) for rule in intake.row_treatments(left)] == [
        ("drop", "1 left out")
    ]
    kept = intake.store_upload(
        text, "odd.csv", store, choices={"mapping": mapping, "cpu_jobs": "keep"}
    ).account
    assert intake.row_treatments(kept)[0].sentence == "1 kept"
    assert intake.row_treatments({"format": "sample"}) == ()


def test_jobs_that_still_run_are_counted_under_either_rule(store: Store) -> None:
    lines = [
        "JobIDRaw|Submit|Start|End|State|ElapsedRaw|AllocTRES",
        "1|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T00:10:00|COMPLETED|600|gres/gpu=1",
        "2|2026-03-01T00:05:00|2026-03-01T00:05:00|Unknown|RUNNING|300|gres/gpu=2",
    ]
    text = "\n".join(lines).encode()
    for chosen, told in (("drop", "1 left out"), ("cut", "1 cut, 0 left out")):
        account = intake.store_upload(
            text, "mine.csv", store, choices={"unfinished": chosen}
        ).account
        assert intake.row_treatments(account)[1].sentence == told
        assert account["used"] + account["dropped"] == account["read"]


def test_a_format_with_known_columns_says_what_is_known_of_jobs(store: Store) -> None:
    account = {
        "columns": {},
        "fields": ["job_id", "submit_time_s", "num_gpus", "time_limit_s", "gpu_type", "vc"],
    }
    assert (
        intake.describe_columns(account)
        == "submission, GPUs, time limit, GPU type, virtual cluster"
    )
    assert intake.describe_columns({}) == ""


def test_examples_are_the_first_values_that_are_there() -> None:
    found = intake.peek_upload(b"a,b\n,x\n1,\n2,y\n3,z\n4,w\n", "x.csv")
    assert intake.example_cells(found) == {"a": "1, 2, 3", "b": "x, y, z"}


def test_the_wrong_unit_looks_absurd() -> None:
    found = intake.peek_upload(
        b"job_id,submit_time_s,num_gpus,duration_s\na,0,1,600000\nb,0,1,1200000\nc,0,1,oops\n",
        "x.csv",
    )
    assert intake.median_duration_s(found, None, "ms") == 900.0
    assert intake.duration_by_unit(900.0, "ms") == {
        "s": 900_000.0,
        "ms": 900.0,
        "min": 54_000_000.0,
        "h": 3_240_000_000.0,
        "d": 77_760_000_000.0,
    }
    assert math.isnan(intake.median_duration_s(found, {"duration_s": "nowhere"}, "s"))


def test_columns_are_guessed_and_told_as_the_file_writes_them(store: Store) -> None:
    data = b"Job;Submitted;Took;Gpus;Who\na;0;60;1;ann\nb;5;70;2;bob\n"
    found = intake.peek_upload(data, "own.csv")
    assert found.missing == ()
    assert intake.written_columns(found) == ("Job", "Submitted", "Took", "Gpus", "Who")
    account = intake.store_upload(data, "own.csv", store, start=found).account
    assert (
        intake.describe_columns(account)
        == "job id ← Job · submission ← Submitted · GPUs ← Gpus · duration ← Took · user ← Who"
    )


def test_a_known_format_tells_its_columns(store: Store) -> None:
    data = b"JobIDRaw|Submit|Start|End|State|ElapsedRaw|AllocTRES\n1|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T00:10:00|COMPLETED|600|gres/gpu=1\n"  # noqa: E501
    found = intake.peek_upload(data, "month.txt")
    account = intake.store_upload(data, "month.txt", store, start=found).account
    assert "submission ← Submit" in intake.describe_columns(account)


MS = b"job_id,submit_time_s,num_gpus,duration_s\n" + b"".join(
    b"j%d,%d,1,600\n" % (at, 1_700_000_000_000 + 60_000 * at) for at in range(5)
)


def test_times_in_milliseconds_are_refused_with_the_way_out(store: Store) -> None:
    with pytest.raises(TraceError, match=r"look like milliseconds since 1970.*--time-unit ms"):
        intake.store_upload(MS, "mine.csv", store)
    assert store.traces() == []
    taken = intake.store_upload(MS, "mine.csv", store, choices={"time_unit": "ms"})
    trace = load_source(taken.spec, store).trace
    assert trace.numbers("submit_time_s").tolist() == [0, 60, 120, 180, 240]
    assert trace.epoch == "2023-11-14T22:13:20+00:00"


def test_one_odd_time_does_not_hide_milliseconds(store: Store) -> None:
    with pytest.raises(TraceError, match="look like milliseconds"):
        intake.store_upload(MS + b"odd,0,1,60\n", "mine.csv", store)


@pytest.mark.parametrize(
    "content",
    [
        b"job_id,submission_time,duration,num_gpu\n"
        + b"".join(b"j%d,%d,600,1\n" % (at, 1_700_000_000_000 + at) for at in range(5)),
        b"id_job,state,time_submit,time_start,time_end,tres_alloc\n"
        + b"".join(
            b"%d,3,%d,%d,%d,1001=1\n"
            % (at, *(1_700_000_000_000 + at + step for step in (0, 5, 90)))
            for at in range(5)
        ),
    ],
)
def test_milliseconds_in_other_formats(store: Store, content: bytes) -> None:
    with pytest.raises(TraceError, match="look like milliseconds since 1970"):
        intake.store_upload(content, "mine.csv", store)


def test_a_list_of_jobs_takes_the_unit_that_is_chosen(store: Store) -> None:
    content = b"job_id,submission_time,duration,num_gpu\n" + b"".join(
        b"j%d,%d,600,1\n" % (at, 1_700_000_000_000 + 1000 * at) for at in range(5)
    )
    taken = intake.store_upload(content, "itp.csv", store, choices={"time_unit": "ms"})
    assert load_source(taken.spec, store).trace.span_s == 4


def test_a_submission_decades_away_is_left_out(store: Store) -> None:
    rows = b"".join(b"j%d,%d,1,600\n" % (at, 60 * at) for at in range(5))
    taken = intake.store_upload(
        b"job_id,submit_time_s,num_gpus,duration_s\n"
        + rows
        + b"far,100000000000,1,60\nlong,9,1,3000000000\n",
        "mine.csv",
        store,
    )
    assert {item["reason"] for item in taken.account["reasons"]} == {
        "the submission is decades away from most others",
        "the duration is too large to be real",
    }


@pytest.mark.parametrize("limit", ["0", "-5", ""])
def test_a_time_limit_of_nothing_is_not_given(store: Store, limit: str) -> None:
    taken = intake.store_upload(
        b"job_id,submit_time_s,num_gpus,duration_s,time_limit_s\na,0,1,60,%s\nb,1,1,60,90\n"
        % limit.encode(),
        "mine.csv",
        store,
    )
    limits = load_source(taken.spec, store).trace.numbers("time_limit_s", -1)
    assert limits.tolist() == [-1, 90]


def test_a_date_that_no_calendar_holds_costs_only_its_row(store: Store) -> None:
    rows = b"id_job,state,time_submit,time_start,time_end,tres_alloc\n" + b"".join(
        b"%d,3,%d,%d,%d,1001=1\n" % (at, at, at, at + 60) for at in (1_700_000_000, 10**13)
    )
    taken = intake.store_upload(rows, "mine.csv", store)
    assert len(load_source(taken.spec, store).trace.frame) == 1
    with pytest.raises(TraceError, match="centuries away from today"):
        intake.store_upload(rows.splitlines()[0] + b"\n" + rows.splitlines()[2], "mine.csv", store)


def test_a_count_of_400_digits_is_no_count(store: Store) -> None:
    rows = (
        b"id_job,state,time_submit,time_start,time_end,tres_alloc\n1,3,100,100,160,1001=1\n2,3,100,100,160,1001="
        + b"9" * 400
        + b"\n"
    )
    assert (
        len(load_source(intake.store_upload(rows, "mine.csv", store).spec, store).trace.frame) == 1
    )


def test_the_first_jobs_are_told_whatever_is_in_them(store: Store) -> None:
    data = (
        b"job_id,submit_time_s,num_gpus,duration_s,start_time_s,end_time_s,user\n"
        b"a,1772449200,1,60,1e30,,ann\nb,1772449260,2,90,,1772449500,\n"
    )
    taken = intake.store_upload(data, "t.csv", store, start=intake.peek_upload(data, "t.csv"))
    assert taken.first["submission"].tolist() == ["2026-03-02 11:00:00", "2026-03-02 11:01:00"]
    assert taken.first["start"].tolist() == ["1e+30", "–"]
    assert taken.values["submit_time_s"][0] == "1772449200, 1772449260"
    assert taken.values["duration_s"] == ("60, 90", "1 min, 1.5 min")

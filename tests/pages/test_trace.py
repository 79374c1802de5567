from __future__ import annotations

import gzip
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from sim.cluster import Cluster
from tests.jobtraces.readers.account import FIXTURES
from tests.jobtraces.readers.test_several_tables import FILES
from tests.pages.conftest import FakePool, Open, finish, sound, study_of, texts
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import intake, likeness
from trainyard.traces.samples import load_sample
from trainyard.traces.sources import load_trace
from ui import state

GOOD = (
    b"job_id,submit_time_s,num_gpus,duration_s\na,0,1,600\nb,60,0.5,1200\nc,90,4,-20\nd,120,0,60\n"
)
SACCT = b"JobIDRaw|Submit|Start|End|State|ElapsedRaw|AllocTRES\n1|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T00:10:00|COMPLETED|600|gres/gpu=1\n"  # noqa: E501
ODD = b"who,when,many,seconds\na,0,1,600\nb,60,2,1200\n"


def give(app: AppTest, name: str, content: bytes) -> AppTest:
    return app.file_uploader[0].set_value((name, content, "text/csv")).run()


def source(app: AppTest) -> str:
    return study_of(app).base.trace.source


def test_the_sample_is_described_and_drawn(visit: Open) -> None:
    app = visit("trace")
    assert "1,200 jobs" in texts(app)
    assert len(app.get("plotly_chart")) >= 3


def test_an_upload_is_kept_at_once_and_accounted_for(visit: Open, pool: FakePool) -> None:
    app = give(visit("trace"), "mine.csv", GOOD)
    sound(app)
    assert source(app) == f"store:{pool.store.traces()[0].digest}"
    assert "2 used + 2 left out = 4 read" in texts(app)
    assert app.title[0].value.startswith("mine.csv: 2 jobs, 2 of 4 rows left out, 1 min")
    assert table(app) == [
        ("2", "used", ""),
        ("1", "left out", "no GPU: a CPU job"),
        ("1", "left out", "the duration is negative"),
        ("1", "altered", "the GPU count is a fraction: rounded up"),
    ]


@pytest.mark.parametrize("name", ["mine.trace", "mine.trace.gz"])
def test_a_trace_of_gavel_is_taken_under_the_name_that_it_has(visit: Open, name: str) -> None:
    content = "".join(
        f"LM (batch size 20)\tpython3 main.py\t.\t--steps\t1\t{steps}\t1\t1\t-1\t0\n"
        for steps in (90_000, 40_000)
    ).encode()
    app = give(visit("trace"), name, gzip.compress(content) if name.endswith(".gz") else content)
    sound(app)
    assert "2 used + 0 left out = 2 read" in texts(app)


def test_an_upload_gets_a_cluster_that_fits_with_one_click_back(visit: Open) -> None:
    app = visit("trace")
    before = study_of(app).base.cluster
    give(app, "mine.csv", GOOD)
    fits = study_of(app).base.cluster
    assert fits.gpus == 8
    assert "Cluster: A guess without recorded starts: the jobs fill it on their" in texts(app)
    app.button(key="cluster_before").click().run()
    sound(app)
    assert study_of(app).base.cluster == before
    assert f"Cluster: {before.name}, {before.gpus} GPUs. These jobs would fit on" in texts(app)
    app.button(key="own_cluster").click().run()
    assert study_of(app).base.cluster == fits


def test_where_the_size_is_a_guess_it_is_asked_for(visit: Open, pool: FakePool) -> None:
    app = give(visit("trace"), "mine.csv", GOOD)
    assert study_of(app).base.cluster.name == "guessed from mine.csv"
    (asked,) = [one for one in app.number_input if one.label == "How many GPUs do you have?"]
    assert asked.value is None
    # Skipped, the guess stays, and results say that it is one.
    finish(pool, study_of(app))
    app.switch_page("pages/compare.py").run()
    app.session_state[state._SESSION].displayed_study = study_of(app)
    app.run()
    assert "The number of GPUs is a guess: no starts are recorded." in texts(app)
    app.switch_page("pages/trace.py").run()
    (asked,) = [one for one in app.number_input if one.label == "How many GPUs do you have?"]
    asked.set_value(20)
    next(one for one in app.button if one.label == "Use this number").click().run()
    sound(app)
    cluster = study_of(app).base.cluster
    assert [(group.count, group.gpus) for group in cluster.groups] == [(2, 8), (1, 4)]
    assert not [one for one in app.number_input if one.label == "How many GPUs do you have?"]
    app.switch_page("pages/compare.py").run()
    sound(app)


def test_a_trace_with_starts_asks_for_no_number_of_gpus(visit: Open) -> None:
    app = give(visit("trace"), "mine.txt", SACCT)
    sound(app)
    assert not [one for one in app.number_input if one.label == "How many GPUs do you have?"]


def test_a_file_of_machines_becomes_the_cluster_and_the_jobs_stay(visit: Open) -> None:
    app = visit("trace")
    before = source(app)
    give(
        app,
        "nodes.txt",
        b"gpu-1|all*|gpu:a100:4|64|515000|idle|\ngpu-2|all*|gpu:a100:4|64|515000|down*|\n",
    )
    sound(app)
    assert source(app) == before
    assert study_of(app).base.cluster.gpus == 4
    assert "nodes.txt describes machines, not jobs: 1 node with 4 GPUs" in texts(app)
    assert "1 node down, drained or reserved: left out." in texts(app)
    # A type without a known speed is asked for on this page.
    give(app, "list.csv", b"machineId,number of GPUs, single GPU mem\nm0,2, 12GB\nm1,8, 24GB\n")
    assert "No speed known for ‘12gb’" in texts(app)
    assert study_of(app).base.cluster.gpus == 4


def test_an_upload_stays_when_the_page_is_left(visit: Open) -> None:
    app = give(visit("trace"), "mine.csv", GOOD)
    kept = source(app)
    app.switch_page("pages/cluster.py").run()
    app.switch_page("pages/trace.py").run()
    sound(app)
    assert source(app) == kept
    assert "= 4 read" in texts(app)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("paper.csv", b"%PDF-1.4 something"),
        ("one.csv", b"just one column\n1\n2\n"),
        ("negative.csv", b"job_id,submit_time_s,num_gpus,duration_s\na,0,1,-5\n"),
        ("broken.json", b"[{,"),
        ("bomb.parquet", b"PAR1 not really PAR1"),
        ("packed.gz", b"\x1f\x8b broken"),
    ],
)
def test_a_bad_upload_is_exactly_one_sentence_and_the_old_trace_stays(
    visit: Open, name: str, content: bytes
) -> None:
    app = visit("trace")
    before = source(app)
    give(app, name, content)
    sound(app)
    assert len(app.error) == 1
    assert name in app.error[0].value
    assert source(app) == before
    assert "still in use" in texts(app)


def test_a_bad_file_leaves_the_questions_of_the_one_in_use(visit: Open) -> None:
    app = give(visit("trace"), "march.csv", LIST.encode())
    give(app, "paper.csv", b"%PDF-1.7")
    assert [error.value.partition(":")[0] for error in app.error] == ["paper.csv"]
    assert "This file leaves 2 questions open." in texts(app)
    press(app, "Read with these answers")
    assert "questions open" not in texts(app)
    give(app, "paper.csv", b"%PDF-1.7")
    # The machines of the next drop are fine, and so is that drop.
    give(app, "nodes.txt", NODES)
    sound(app)
    assert not app.error
    assert study_of(app).base.cluster.gpus == 4


def test_columns_that_cannot_be_read_are_dismissed_for_those_in_use(visit: Open) -> None:
    app = give(visit("trace"), "mine.csv", GOOD)
    kept = source(app)
    labelled(app.selectbox, "job id").set_value("")
    labelled(app.selectbox, "submission").set_value("job_id")
    app.button(key="read_columns").click().run()
    assert app.error
    assert source(app) == kept
    app.run()
    app.button(key="dismiss_file").click().run()
    sound(app)
    assert not app.error
    assert "2 used + 2 left out = 4 read" in texts(app)
    assert app.button(key="read_columns")


def test_an_unknown_table_is_mapped_by_hand(visit: Open) -> None:
    app = give(visit("trace"), "odd.csv", ODD)
    assert len(app.error) == 1
    for native, column in (
        ("submit_time_s", "when"),
        ("num_gpus", "many"),
        ("duration_s", "seconds"),
    ):
        app.selectbox(key=f"map/odd.csv/{native}").set_value(column)
    next(button for button in app.button if button.label == "Read with these columns").click().run()
    sound(app)
    assert not app.error
    assert "2 used + 0 left out = 2 read" in texts(app)


def test_one_column_cannot_mean_two_things(visit: Open) -> None:
    app = give(visit("trace"), "odd.csv", ODD)
    for native in ("submit_time_s", "num_gpus", "duration_s"):
        app.selectbox(key=f"map/odd.csv/{native}").set_value("many")
    next(button for button in app.button if button.label == "Read with these columns").click().run()
    # Beside the button: the form is higher than the window.
    assert app.error[-1].value == ("The column 'many' is chosen twice. Use each column once.")


def table(app: AppTest) -> list[tuple[str, ...]]:
    """The rows of the account, without their heading."""
    cells = [column.markdown for column in app.columns]
    rows = [
        tuple(cell[0].value if len(cell) else "" for cell in cells[at : at + 3])
        for at in range(0, len(cells) - 3, 4)
    ]
    first = next(at for at, row in enumerate(rows) if row == ("**Rows**", "**What**", "**Why**"))
    found = rows[first + 1 :]
    return [row for row in found if row[0].replace(",", "").isdigit()]


def labelled(boxes: Any, beginning: str) -> Any:
    return next(box for box in boxes if box.label.startswith(beginning))


def press(app: AppTest, label: str) -> AppTest:
    next(button for button in app.button if button.label == label).click().run()
    sound(app)
    return app


def test_a_rule_for_a_class_of_rows_reads_the_file_again(visit: Open) -> None:
    app = give(visit("trace"), "mine.csv", GOOD)
    assert "2 used + 2 left out = 4 read" in texts(app)
    rule = labelled(app.selectbox, "Jobs without GPUs")
    assert rule.label == "Jobs without GPUs: 1 left out"
    rule.set_value("keep").run()
    sound(app)
    assert "3 used + 1 left out = 4 read" in texts(app)
    rule = labelled(app.selectbox, "Jobs without GPUs")
    assert (rule.label, rule.value) == ("Jobs without GPUs: 1 kept", "keep")
    rule.set_value("drop").run()
    assert "2 used + 2 left out = 4 read" in texts(app)


def test_reading_choices_read_the_file_again(visit: Open) -> None:
    app = give(visit("trace"), "mine.csv", GOOD)
    units = labelled(app.selectbox, "Unit of durations")
    assert units.options == [
        "as in the file",
        "seconds: median 15 min",
        "milliseconds: median 0.9 s",
        "minutes: median 15 h",
        "hours: median 37.5 days",
        "days: median 900 days",
    ]
    units.set_value("min")
    press(app, "Read again")
    assert "seconds: median 15 min" in labelled(app.selectbox, "Unit of durations").options


def test_a_rule_that_changes_nothing_is_still_taken(visit: Open) -> None:
    app = give(visit("trace"), "mine.txt", SACCT)
    before = source(app)
    labelled(app.selectbox, "Jobs still running").set_value("cut").run()
    sound(app)
    assert labelled(app.selectbox, "Jobs still running").value == "cut"
    assert source(app) == before


def test_how_the_file_was_read_and_what_each_column_is(visit: Open) -> None:
    app = give(visit("trace"), "mine.csv", GOOD)
    shown = texts(app)
    assert "**mine.csv** · Trainyard table (CSV, TSV or Parquet) · 2 used" in shown
    assert "submission ← submit_time_s" in shown
    native = app.selectbox(key="map/mine.csv/duration_s")
    assert "duration_s: 600, 1200, -20" in native.options


def test_after_a_reload_the_counts_are_left(visit: Open) -> None:
    app = give(visit("trace"), "mine.csv", GOOD)
    study = study_of(app)
    again = visit("trace", study)
    assert "2 used + 2 left out = 4 read" in texts(again)
    assert "Jobs without GPUs: 1 left out" in texts(again)
    assert not [box for box in again.selectbox if box.label.startswith("Jobs without GPUs")]


def test_a_file_without_any_gpu_can_be_read_with_cpu_jobs(visit: Open) -> None:
    app = give(
        visit("trace"),
        "cpu.csv",
        b"job_id,submit_time_s,num_gpus,duration_s\na,0,0,600\nb,5,0,10\n",
    )
    assert "Keep CPU jobs" in app.error[0].value
    labelled(app.selectbox, "Jobs without GPUs").set_value("keep")
    press(app, "Read again")
    assert not app.error
    assert "2 used + 0 left out = 2 read" in texts(app)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("blank.csv", b"\n  \n", "is empty"),
        ("book.xlsx.zip", b"PK\x03\x04broken", "damaged"),
        ("binary.csv", bytes(range(256)) * 50, "binary file"),
        ("spaces.csv", GOOD.replace(b",", b" "), "separator is unknown"),
        (
            "no-names.csv",
            b"a,0,1,600\nb,60,2,1200\n",
            "looks like a row, not a header",
        ),
        ("no-rows.csv", GOOD.splitlines()[0], "no row below it"),
        ("text.csv", b"a,b,c\nx,y,z\n", "no column looks like a submission time"),
    ],
)
def test_each_error_says_what_is_wrong(visit: Open, name: str, content: bytes, said: str) -> None:
    app = give(visit("trace"), name, content)
    sound(app)
    assert len(app.error) == 1
    assert said in app.error[0].value


def test_what_must_be_answered_is_said_once(visit: Open) -> None:
    app = give(visit("trace"), "abc.csv", b"a,b,c\n1,2,3\n")
    sound(app)
    assert [error.value for error in app.error] == ["abc.csv cannot be read yet."]
    assert "questions open.** It cannot be read without an answer." in texts(app)
    assert sum("looks like a submission time" in radio.label for radio in app.radio) == 1


def test_a_column_that_was_answered_stands_in_its_choice(visit: Open) -> None:
    app = give(visit("trace"), "odd.csv", b"abgesendet,gpus,dauer\n60,1,0:10:00\n0,2,0:20:00\n")
    at = next(one for one in app.radio if one.key.endswith("column.submit_time_s"))
    at.set_value("abgesendet")
    press(app, "Read with these answers")
    assert labelled(app.selectbox, "submission").value == "abgesendet"
    assert "With these columns:" not in texts(app)


def test_a_file_that_unpacks_to_too_much_is_not_read(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "MAX_UPLOAD_BYTES", 1_000_000)
    app = give(visit("trace"), "bomb.csv.gz", gzip.compress(b"0" * 1_100_000))
    sound(app)
    assert [error.value for error in app.error] == [
        "bomb.csv.gz: the archive unpacks to more than the limit of 1 MB. Use a shorter time range."
    ]


def test_strange_names_of_columns_are_shown_as_they_are(visit: Open) -> None:
    app = give(visit("trace"), "odd.csv", b"*when*,<b>,\xe2\x80\xaeseconds\na,<script>,5\nb,x,6\n")
    sound(app)
    options = app.selectbox(key="map/odd.csv/duration_s").options
    assert "*when*: a, b" in options
    assert "<b>: <script>, x" in options
    assert not [option for option in options if "\u202e" in option]


def test_rows_that_cannot_be_used_are_counted_and_the_rest_is_read(visit: Open) -> None:
    header = GOOD.splitlines(keepends=True)[0]
    app = give(visit("trace"), "mine.csv", GOOD + header + b"e\x00,5,1,1\n")
    sound(app)
    assert "2 used + 4 left out = 6 read" in texts(app)


def test_a_trace_is_deleted_with_a_click(visit: Open, pool: FakePool) -> None:
    app = give(visit("trace"), "mine.csv", GOOD)
    gone = study_of(app)
    app.button(key="forget").click().run()
    sound(app)
    assert pool.store.traces() == []
    assert source(app).startswith("sample:")
    assert [info.value for info in app.info] == ["Deleted mine.csv from this server."]
    assert not app.error
    assert "trace is not on this server" in texts(visit("trace", gone))


def test_where_the_trace_is_gone_another_can_be_chosen(
    visit: Open, pool: FakePool, tiny: Study
) -> None:
    gone = replace(tiny, base=replace(tiny.base, trace=TraceSpec("store:" + "0" * 32)))
    app = visit("trace", gone)
    assert "trace is not on this server" in texts(app)
    labelled(app.selectbox, "Sample").set_value("tiny").run()
    sound(app)
    assert source(app) == "sample:tiny"
    assert "trace is not on this server" not in texts(app)
    again = give(visit("trace", gone), "mine.csv", GOOD)
    assert source(again).startswith("store:")


@pytest.mark.parametrize("page", ["cluster", "policies"])
def test_the_other_pages_live_without_the_trace(visit: Open, tiny: Study, page: str) -> None:
    app = visit(page, replace(tiny, base=replace(tiny.base, trace=TraceSpec("store:" + "0" * 32))))
    assert "trace is not on this server" in texts(app)
    assert len(app.metric) > 2 or [one for one in app.get("bidi_component") if page == "policies"]


def test_a_part_of_users_and_jobs_and_other_names(visit: Open) -> None:
    app = visit("trace")
    labelled(app.number_input, "Keep 1 user in").set_value(2).run()
    labelled(app.number_input, "Random jobs").set_value(100).run()
    labelled(app.number_input, "Sample seed").set_value(3).run()
    labelled(app.toggle, "Hide names and ids").set_value(True).run()
    sound(app)
    spec = study_of(app).base.trace
    assert (spec.every_user, spec.sample, spec.sample_seed, spec.anonymise) == (2, 100, 3, True)
    assert "100 jobs of 1,200" in texts(app)
    assert "cannot be replayed" in texts(app)
    labelled(app.number_input, "Random jobs").set_value(0).run()
    labelled(app.number_input, "Keep 1 user in").set_value(1).run()
    labelled(app.toggle, "Hide names and ids").set_value(False).run()
    assert study_of(app).base.trace == TraceSpec("sample:week")


def test_without_users_there_is_nothing_to_choose_of_them(visit: Open) -> None:
    app = give(visit("trace"), "mine.csv", GOOD)
    assert labelled(app.number_input, "Keep 1 user in").disabled
    assert not labelled(app.toggle, "Hide names and ids").disabled


def test_an_address_with_unusual_values_opens(visit: Open, tiny: Study) -> None:
    spec = replace(tiny.base.trace, load=50.0, sample=10**6, sample_seed=10**6)
    app = visit("trace", replace(tiny, base=replace(tiny.base, trace=spec)))
    assert study_of(app).base.trace == spec


def test_another_sample_brings_its_cluster(visit: Open) -> None:
    app = visit("trace")
    next(box for box in app.selectbox if box.label == "Sample").set_value("tiny").run()
    sound(app)
    study = study_of(app)
    assert study.base.trace.source == "sample:tiny"
    assert study.base.cluster.gpus == 8


def test_window_and_load_change_the_trace(visit: Open) -> None:
    app = visit("trace")
    app.slider[0].set_range(1.0, 3.0).run()
    next(item for item in app.number_input if item.label == "Load multiplier").set_value(2.0).run()
    sound(app)
    spec = study_of(app).base.trace
    assert (spec.from_s, spec.to_s, spec.load, spec.load_by) == (86_400, 3 * 86_400, 2.0, "pace")
    assert "cannot be replayed" in texts(app)
    next(box for box in app.selectbox if box.label == "Change load by").set_value("jobs").run()
    next(item for item in app.number_input if item.label == "Sample seed").set_value(3).run()
    sound(app)
    assert study_of(app).base.trace == replace(spec, load_by="jobs", sample_seed=3)


def test_a_name_without_an_ending_is_taken(visit: Open) -> None:
    app = give(visit("trace"), "cluster_job_log", GOOD)
    sound(app)
    assert "2 used + 2 left out = 4 read" in texts(app)


# A list without a unit: 20 min if seconds, 14 days if minutes.
LIST = "id,submitted,gpus,duration\n" + "\n".join(
    f"j{at},2026-03-{1 + at % 9:02d} 0{at % 9}:00:00,{1 + at % 4},{1200 + at}" for at in range(30)
)


def test_what_a_file_leaves_open_is_asked_above_its_account(visit: Open) -> None:
    app = give(visit("trace"), "list.csv", LIST.encode())
    sound(app)
    assert "open.**" in texts(app)
    asked = [one for one in app.radio if one.key.startswith("question/")]
    unit = next(one for one in asked if "duration_unit" in one.key)
    first = source(app)
    unit.set_value("min")
    next(one for one in app.button if one.label == "Read with these answers").click()
    app.run()
    sound(app)
    assert source(app) != first
    assert "open.**" not in texts(app)
    answered = [one for one in app.radio if one.key.endswith("duration_unit")]
    assert [one.value for one in answered] == ["min"]


def numbers(app: AppTest) -> list[Any]:
    return [one for one in app.number_input if (one.key or "").startswith("question/")]


def test_numbers_that_a_file_lacks_are_fields(visit: Open, pool: FakePool) -> None:
    head = b"name,time,application,num_replicas,batch_size\n"
    app = give(visit("trace"), "sia.csv", head + b"a,0,ncf,1,8\nb,60,bert,2,8\n")
    sound(app)
    assert [one.value for one in numbers(app)] == [None, None]
    numbers(app)[1].set_value(7200)
    press(app, "Read with these answers")
    # The other is still open, and what was said stays.
    assert "leaves 1 question open" in texts(app)
    numbers(app)[0].set_value(90.5)
    press(app, "Read with these answers")
    assert "open.**" not in texts(app)
    trace = load_trace(study_of(app).base.trace, pool.store)
    assert trace.frame["duration_s"].tolist() == [90.5, 7200]
    assert [one.value for one in numbers(app)] == [90.5, 7200]


def answered(app: AppTest) -> AppTest:
    asked = [one for one in app.radio if one.key.startswith("question/")]
    next(one for one in asked if "duration_unit" in one.key).set_value("min")
    return press(app, "Read with these answers")


def test_answers_are_kept_for_the_next_file_of_this_browser_alone(visit: Open) -> None:
    app = answered(give(visit("trace"), "list.csv", LIST.encode()))
    app.button(key="save_recipe").click().run()
    sound(app)
    assert "Read by your recipe “list” of " in texts(app)
    assert not [one for one in app.button if one.key == "save_recipe"]
    before = source(app)
    later = LIST.encode() + LIST.encode().splitlines()[-1].replace(b"1", b"9", 1) + b"\n"
    give(app, "april.csv", later)
    sound(app)
    assert "open.**" not in texts(app)
    assert "Read by your recipe “list” of " in texts(app)
    assert source(app) != before
    # Another browser is asked.
    assert "open.**" in texts(give(visit("trace"), "april.csv", later))
    press(app, "Read without it")
    assert "open.**" in texts(app)
    assert "Read by your recipe" not in texts(app)
    app.button(key="forget_recipe").click().run()
    give(app, "may.csv", later)
    assert "open.**" in texts(app)


def test_a_recipe_comes_as_a_file(visit: Open) -> None:
    app = answered(give(visit("trace"), "list.csv", LIST.encode()))
    kept = source(app)
    text = next(one.value for one in app.code if "[read]" in one.value)
    other = give(visit("trace"), "list.csv", LIST.encode())
    assert source(other) != kept
    field = other.file_uploader(key="recipe_file")
    field.set_value(("list.toml", text.encode(), "application/toml")).run()
    sound(other)
    assert source(other) == kept
    field = other.file_uploader(key="recipe_file")
    field.set_value(("bad.toml", b"[read", "application/toml")).run()
    assert [
        one.value for one in other.error if "bad.toml: the recipe is not valid TOML" in one.value
    ]
    assert source(other) == kept


def test_other_columns_are_tried_before_they_are_read(visit: Open) -> None:
    app = give(visit("trace"), "odd.csv", ODD)
    before = source(app)
    chosen = {"submit_time_s": "when", "num_gpus": "many", "duration_s": "seconds"}
    for native, column in chosen.items():
        app.selectbox(key=f"map/odd.csv/{native}").set_value(column)
    app.run()
    assert "**With these columns:** 2 of 2 rows used." in texts(app)
    assert "600, 1200  \n→ 10 min, 20 min" in texts(app)
    assert source(app) == before
    app.selectbox(key="map/odd.csv/num_gpus").set_value("who").run()
    assert "**With these columns:** The column 'who' is chosen twice." in texts(app)


def test_the_first_jobs_are_shown_as_they_were_read(visit: Open) -> None:
    app = give(visit("trace"), "mine.csv", GOOD)
    shown = next(one.value for one in app.dataframe if "submission" in one.value)
    assert shown["GPUs"].tolist() == ["1", "1"]
    assert shown["duration"].tolist() == ["10 min", "20 min"]
    assert shown.index.tolist() == [1, 2]


def test_what_a_warning_offers_is_a_button(visit: Open) -> None:
    rows = "".join(f"j{at},{at // 2 * 60},1,{600 + at // 2}\n" for at in range(60))
    app = give(visit("trace"), "t.csv", GOOD.splitlines(keepends=True)[0] + rows.encode())
    assert "60 used + 0 left out" in texts(app)
    app.button(key="offer/twice/leave_out").click().run()
    sound(app)
    assert "30 used + 30 left out" in texts(app)
    assert not [one for one in app.button if one.key.startswith("offer/")]


def test_a_good_file_after_a_bad_one_shows_its_own_dialogue(visit: Open) -> None:
    app = give(visit("trace"), "paper.csv", b"%PDF-1.7")
    assert len(app.error) == 1
    give(app, "list.csv", LIST.encode())
    sound(app)
    assert not app.error
    assert "open.**" in texts(app)
    assert "**list.csv** · " in texts(app)


def test_the_official_name_of_phillys_log_has_no_ending(visit: Open) -> None:
    log = (FIXTURES / "cluster_job_log.json").read_bytes()
    app = give(visit("trace"), "cluster_job_log", log)
    sound(app)
    assert not app.error
    assert "**cluster_job_log** · " in texts(app)


NODES = b"gpu-1|all*|gpu:a100:4|64|515000|idle|\n"


def drop(app: AppTest, **files: bytes) -> AppTest:
    given = [(name.replace("_", "."), data, "text/csv") for name, data in files.items()]
    return app.file_uploader[0].set_value(given).run()


def test_jobs_and_machines_of_one_drop_are_taken_together(visit: Open) -> None:
    app = drop(visit("trace"), nodes_txt=NODES, mine_csv=GOOD, paper_csv=b"%PDF-1.7")
    sound(app)
    assert "2 used + 2 left out = 4 read" in texts(app)
    assert study_of(app).base.cluster.gpus == 4
    assert "The jobs are from mine.csv, the cluster from nodes.txt: 1 node with 4 GPUs" in texts(
        app
    )
    assert [one.value for one in app.warning if "paper.csv" in one.value]


def test_tables_of_one_drop_are_joined_and_can_be_read_again(visit: Open) -> None:
    app = drop(visit("trace"), **{name.replace(".", "_"): data for name, data in FILES.items()})
    sound(app)
    assert "2 used + 2 left out = 4 read" in texts(app)
    next(button for button in app.button if button.label == "Read again").click().run()
    sound(app)
    assert "2 used + 2 left out = 4 read" in texts(app)


def test_of_two_traces_the_one_that_is_meant_is_asked(visit: Open) -> None:
    app = visit("trace")
    before = source(app)
    drop(app, good_csv=GOOD, slurm_txt=SACCT, nodes_txt=NODES)
    assert source(app) == before
    assert app.radio(key="which_trace").options == ["good.csv", "slurm.txt"]
    app.radio(key="which_trace").set_value("slurm.txt").run()
    app.button(key="use_which").click().run()
    sound(app)
    assert "1 used + 0 left out = 1 read" in texts(app)
    assert study_of(app).base.cluster.gpus == 4
    assert not any(radio.key == "which_trace" for radio in app.radio)


def test_two_traces_can_be_made_one(visit: Open) -> None:
    app = visit("trace")
    drop(app, good_csv=GOOD, slurm_txt=SACCT)
    app.button(key="merge_all").click().run()
    assert "slurm.txt has a start date and good.csv has none" in app.error[0].value
    drop(app, good_csv=GOOD, more_csv=GOOD + b"x,5,1,60\n", nodes_txt=NODES)
    app.button(key="merge_all").click().run()
    sound(app)
    assert not any(radio.key == "which_trace" for radio in app.radio)
    assert "2 traces are merged." in texts(app)
    assert study_of(app).base.cluster.gpus == 4


def test_figures_of_a_look_alike_are_opened(visit: Open) -> None:
    app = visit("trace")
    spec = likeness.fit_look_alike(load_sample("week")[0], load=0.5, seed=3)
    give(app, "week.json", likeness.figures_document(spec).encode())
    sound(app)
    assert source(app) == spec.source
    give(app, "bad.json", b'{"name": "like", "params": {"sizes": [2, 1]}}')
    assert "like: size_shares must have 2 numbers, but has 4" in app.error[0].value
    assert source(app) == spec.source


def test_each_bad_file_of_a_drop_is_named_and_the_old_trace_stays(visit: Open) -> None:
    app = visit("trace")
    before = source(app)
    drop(app, paper_csv=b"%PDF-1.7", empty_csv=b"")
    assert sorted(error.value.partition(":")[0] for error in app.error) == [
        "empty.csv",
        "paper.csv",
    ]
    assert source(app) == before
    app.button(key="dismiss_file").click().run()
    assert not app.error


def test_jobs_machines_and_virtual_clusters_of_one_drop(visit: Open) -> None:
    app = drop(
        visit("trace"),
        jobs_csv=b"job_id,submit_time_s,num_gpus,duration_s,vc\na,0,1,600,x\nb,60,4,1200,y\n",
        list_csv=b"machineId,number of GPUs,type\nm0,8,v100\nm1,8,v100\n",
        vc_csv=b"vc,nodes\nx,1\ny,1\n",
    )
    sound(app)
    assert [group.partitions for group in study_of(app).base.cluster.groups] == [("x",), ("y",)]
    assert "the cluster from list.csv and vc.csv: 2 nodes with 16 GPUs" in texts(app)


def test_machines_without_a_speed_go_with_the_jobs_that_they_came_with(visit: Open) -> None:
    machines = b"machineId,number of GPUs,type\nm0,8,x9\nm1,8,v100\n"
    app = drop(visit("trace"), jobs_csv=GOOD, list_csv=machines)
    assert "list.csv: 2 nodes with 16 GPUs.** Enter the missing speeds" in texts(app)
    give(app, "other.csv", GOOD.replace(b"1200", b"1300"))
    sound(app)
    assert "Enter the missing speeds" not in texts(app)
    # Dropped alone, before the jobs are.
    give(app, "list.csv", machines)
    give(app, "jobs.csv", GOOD)
    assert "Enter the missing speeds" in texts(app)


def test_of_two_lists_of_machines_none_is_guessed(visit: Open) -> None:
    app = drop(visit("trace"), a_txt=NODES, b_txt=NODES.replace(b"gpu-1", b"gpu-2"), m_csv=GOOD)
    sound(app)
    assert "a.txt, b.txt: each of these describes machines" in app.warning[0].value
    assert study_of(app).base.cluster.gpus == 8


def test_what_is_in_doubt_is_mended_with_a_click(visit: Open, tiny: Study) -> None:
    small = replace(tiny, base=replace(tiny.base, cluster=Cluster.parse("1x2:v100")))
    app = visit("trace", small)
    assert "The recorded schedule used up to" in texts(app)
    assert "Jobs that can never start on this cluster hold" in texts(app)
    mended = visit("trace", small)
    mended.button(key="mend/fit_cluster").click().run()
    sound(mended)
    assert study_of(mended).base.cluster == tiny.base.cluster
    assert not [one for one in mended.button if str(one.key).startswith("mend/")]
    before = source(app)
    app.button(key="mend/leave_out").click().run()
    sound(app)
    assert source(app) != before
    assert "Jobs that can never start" not in texts(app)


def test_too_much_load_is_lowered_and_an_unknown_speed_entered(visit: Open) -> None:
    rows = [f"j{at},{at * 60},4,7200,{'x9' if at % 2 else 'v100'}" for at in range(60)]
    text = "job_id,submit_time_s,num_gpus,duration_s,gpu_type\n" + "\n".join(rows)
    app = give(visit("trace"), "t.csv", text.encode())
    study = study_of(app)
    one = replace(study, base=replace(study.base, cluster=Cluster.parse("1x8:v100")))
    app = visit("trace", one)
    assert "times the capacity of this cluster" in texts(app)
    assert "The speed of X9 is unknown" in texts(app)
    labelled(app.number_input, "Speed of x9").set_value(1.5)
    press(app, "Use these speeds")
    assert "The speed of X9" not in texts(app)
    app.button(key="mend/lower_load").click().run()
    sound(app)
    assert study_of(app).base.trace.load < 1
    assert "times the capacity of this cluster" not in texts(app)

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.conftest import FakePool, Open, sound, study_of, texts

GOOD = b"job_id,submit_time_s,num_gpus,duration_s\na,0,1,600\nb,60,0.5,1200\nc,90,4,-20\nd,120,0,60\n"
ODD = b"who,when,many,seconds\na,0,1,600\nb,60,2,1200\n"


def give(app: AppTest, name: str, content: bytes) -> AppTest:
    return app.file_uploader(key="trace_file").set_value((name, content, "text/csv")).run()


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
    assert {item.label: item.value for item in app.metric} == {"Rows read": "4", "Used": "2", "Left out": "2", "Altered": "1"}


def test_an_upload_stays_when_the_page_is_left(visit: Open) -> None:
    app = give(visit("trace"), "mine.csv", GOOD)
    kept = source(app)
    app.switch_page("pages/cluster.py").run()
    app.switch_page("pages/trace.py").run()
    sound(app)
    assert source(app) == kept
    assert app.metric[0].value == "4"


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
def test_a_bad_upload_is_exactly_one_sentence_and_the_old_trace_stays(visit: Open, name: str, content: bytes) -> None:
    app = visit("trace")
    before = source(app)
    give(app, name, content)
    sound(app)
    assert len(app.error) == 1
    assert name in app.error[0].value
    assert source(app) == before
    assert "still in use" in texts(app)


def test_an_unknown_table_is_mapped_by_hand(visit: Open) -> None:
    app = give(visit("trace"), "odd.csv", ODD)
    assert len(app.error) == 1
    for native, column in (("submit_time_s", "when"), ("num_gpus", "many"), ("duration_s", "seconds")):
        app.selectbox(key=f"map/odd.csv/{native}").set_value(column)
    next(button for button in app.button if button.label == "Read with these columns").click().run()
    sound(app)
    assert not app.error
    assert app.metric[1].value == "2"


def test_one_column_cannot_mean_two_things(visit: Open) -> None:
    app = give(visit("trace"), "odd.csv", ODD)
    for native in ("submit_time_s", "num_gpus", "duration_s"):
        app.selectbox(key=f"map/odd.csv/{native}").set_value("many")
    next(button for button in app.button if button.label == "Read with these columns").click().run()
    assert [error.value for error in app.error] == ["The column 'many' is chosen twice. Use every column for one thing only."]


def test_reading_choices_read_the_file_again(visit: Open) -> None:
    app = give(visit("trace"), "mine.csv", GOOD)
    next(box for box in app.selectbox if box.label == "Jobs without GPUs").set_value("keep")
    next(button for button in app.button if button.label == "Read again").click().run()
    sound(app)
    assert app.metric[1].value == "3"


def test_another_sample_brings_its_cluster(visit: Open) -> None:
    app = visit("trace")
    next(box for box in app.selectbox if box.label == "or a sample").set_value("tiny").run()
    sound(app)
    study = study_of(app)
    assert study.base.trace.source == "sample:tiny"
    assert study.base.cluster.gpus == 8


def test_window_and_load_change_the_trace(visit: Open) -> None:
    app = visit("trace")
    app.slider[0].set_range(1.0, 3.0).run()
    next(item for item in app.number_input if item.label == "Load ×").set_value(2.0).run()
    sound(app)
    spec = study_of(app).base.trace
    assert (spec.from_s, spec.to_s, spec.load) == (86_400, 3 * 86_400, 2.0)
    assert "cannot be replayed" in texts(app)

"""The scenario beside every page: what can be changed, taken back, kept and passed on there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from charts import visible
from sim.errors import TrainyardError
from tests.pages.conftest import FakePool, Open, finish, sound, study_of, texts
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import bundle
from trainyard.traces.sources import load_trace
from ui import owner, state
from ui.words import plain

HOSTILE = '"><script>alert(1)</script> **b** \u202e'


def labels(app: AppTest) -> list[str]:
    return [button.proto.label for button in app.sidebar.get("download_button")]


def test_repeats_are_part_of_the_scenario(visit: Open, tiny: Study) -> None:
    app = visit("start", tiny)
    app.sidebar.number_input[1].set_value(3).run()
    sound(app)
    assert study_of(app) == replace(tiny, repeats=3)


def test_undo_takes_one_change_back_after_another(visit: Open, tiny: Study) -> None:
    app = visit("start", tiny)
    assert not [button for button in app.button if button.key == "undo"]
    app.sidebar.number_input[0].set_value(5).run()
    app.sidebar.number_input[1].set_value(3).run()
    undo = next(button for button in app.sidebar.button if button.key == "undo")
    assert undo.proto.help == "Takes back: repeats 1 → 3"
    undo.click().run()
    assert (study_of(app).base.seed, study_of(app).repeats) == (5, 1)
    assert [field.value for field in app.sidebar.number_input] == [5, 1]
    next(button for button in app.sidebar.button if button.key == "undo").click().run()
    assert study_of(app) == tiny
    assert not [button for button in app.button if button.key == "undo"]


def cluster(app: AppTest) -> None:
    app.text_input(key="cluster_spec").set_value("3x8:a100").run()
    app.button(key="use_spec").click().run()


def preset(app: AppTest) -> None:
    box = app.selectbox(key="preset")
    box.set_value(box.options[-1]).run()
    app.button(key="load_preset").click().run()


def sample(app: AppTest) -> None:
    next(box for box in app.selectbox if box.label == "or a sample").set_value("week").run()


def policy(app: AppTest) -> None:
    next(box for box in app.checkbox if not box.value and not box.disabled).check().run()


@pytest.mark.parametrize(("page", "change"), [("cluster", cluster), ("cluster", preset), ("trace", sample), ("policies", policy)])
def test_undo_takes_back_what_a_page_did(visit: Open, tiny: Study, page: str, change: Any) -> None:
    app = visit(page, tiny)
    change(app)
    sound(app)
    assert study_of(app) != tiny
    next(button for button in app.sidebar.button if button.key == "undo").click().run()
    sound(app)
    assert study_of(app) == tiny
    # Nothing on the page makes the change again.
    app.run()
    assert study_of(app) == tiny


def test_no_more_repeats_can_be_asked_for_than_one_click_can_start(visit: Open, tiny: Study, pool: FakePool) -> None:
    pool.most_each = 5 * len(tiny.allocators)
    app = visit("start", tiny)
    assert next(box for box in app.number_input if box.label == "Repeats").max == 5


def test_the_history_is_bounded(tiny: Study, pool: FakePool) -> None:
    del pool
    mine = state.Desk(tiny)
    for seed in range(1, 61):
        mine.edit(state.with_turns(tiny, seed, 1))
    assert len(mine.past) == 50
    for _ in range(60):
        mine.undo()
    assert mine.study.base.seed == 10


def test_a_name_goes_into_the_link_and_changes_no_result(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("start", tiny)
    app.text_input(key=next(box.key for box in app.text_input if box.label == "Name")).set_value(HOSTILE).run()
    sound(app)
    assert study_of(app).base.name == HOSTILE.strip()
    assert "Up to date" in texts(app)
    assert app.query_params["r"] in ("1", ["1"])
    app.switch_page("pages/start.py").run()
    sound(app)
    (listed,) = [button.label for button in app.main.button if str(button.key).startswith("runs/open/")]
    assert listed == plain(visible(HOSTILE))


def test_save_offers_the_scenario_and_the_scenario_with_its_jobs(visit: Open, tiny: Study) -> None:
    app = visit("start", tiny)
    assert {"Scenario (JSON)", "Scenario and jobs (ZIP)"} <= set(labels(app))
    assert f"Id {tiny.digest}" in texts(app)


def test_an_archive_brings_its_jobs_and_shows_stored_results(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("start")
    app.file_uploader(key="scenario_file").set_value(("mine.zip", bundle.archive(tiny, pool.store), "application/zip")).run()
    sound(app)
    assert study_of(app) == tiny
    assert "mine.zip is open with 12 jobs" in app.success[0].value
    assert "Its results are stored here" in app.success[0].value
    assert "Up to date" in texts(app)


def test_what_the_top_says_of_missing_jobs_follows_the_file_that_is_opened(visit: Open, tiny: Study, pool: FakePool) -> None:
    kept = replace(tiny, base=replace(tiny.base, trace=TraceSpec(f"store:{pool.store.put_trace(load_trace(tiny.base.trace))}")))
    whole, alone = bundle.archive(kept, pool.store), bundle.text(kept).encode()
    pool.store.delete_trace(kept.base.trace.source.partition(":")[2])
    app = visit("start", kept)
    app.file_uploader(key="scenario_file").set_value(("mine.json", alone, "application/json")).run()
    sound(app)
    assert ["The link's trace is not on this server" in error.value for error in app.error] == [True]
    assert "Its jobs are still missing." in app.success[0].value
    app.file_uploader(key="scenario_file").set_value(("mine.zip", whole, "application/zip")).run()
    sound(app)
    assert not app.error
    assert [info.value for info in app.info] == ["mine.zip is open with 12 jobs. Press Run to see its results."]


def test_a_deleted_trace_goes_with_its_results_and_out_of_the_history(visit: Open, tiny: Study, pool: FakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = pool.store.put_trace(load_trace(tiny.base.trace), owners=["me"])
    kept = replace(tiny, base=replace(tiny.base, trace=TraceSpec(f"store:{digest}")))
    finish(pool, kept)
    app = visit("start", kept)
    mine = app.session_state[state._DESK]
    mine.past.extend([kept, tiny, kept])
    monkeypatch.setattr(state, "desk", lambda: mine)
    monkeypatch.setattr(owner, "owner", lambda: "a visitor")
    with pytest.raises(TrainyardError, match="uploaded in another browser"):
        state.forget_trace(digest)
    monkeypatch.setattr(owner, "owner", lambda: "me")
    other = pool.submit(kept.repeated(0)[0], "somebody else", again=True)
    with pytest.raises(TrainyardError, match="Somebody else is running this trace"):
        state.forget_trace(digest)
    other.cancel()
    assert state.forget_trace(digest) == len(tiny.allocators)
    mine.edit(tiny)
    assert list(mine.past) == [tiny]
    mine.edit(kept)
    app.run()
    assert "The link's trace is not on this server" in app.error[0].value


def test_a_study_file_is_written_for_people_too(tiny: Study) -> None:
    text = bundle.text(tiny)
    assert json.loads(text) == tiny.to_json()
    assert text == bundle.text(Study.from_json(json.loads(text)))

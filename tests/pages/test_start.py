from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pages.conftest import FakePool, Open, chip, finish, sound, study_of, texts
from tests.shared import SetClock
from trainyard.labs.replays.cards import card_study
from trainyard.labs.replays.reading import CARDS, cards
from trainyard.labs.replays.types import ReplayCard
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study
from ui import state
from ui.server import delete_expired, prepare_sample


def test_start_offers_one_primary_button_and_the_first_sample(visit: Open) -> None:
    app = visit()
    assert [button.label for button in app.button if button.proto.type == "primary"] == [
        "Open the sample"
    ]
    assert "Not run yet" in texts(app)
    assert study_of(app).base.trace.source == "sample:week"


def test_the_primary_button_is_the_bar_s_once_the_scenario_is_one_s_own(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    def primary() -> list[str]:
        app = visit("start", tiny)
        return [button.label for button in app.button if button.proto.type == "primary"]

    assert primary() == ["Run"]
    finish(pool, tiny)
    assert not primary()  # a run would change nothing


def test_run_the_sample_submits_every_policy_and_goes_to_compare(
    visit: Open, pool: FakePool
) -> None:
    app = visit()
    app.button(key="run_sample").click().run()
    sound(app)
    study = study_of(app)
    assert [job.scenario.allocator for job in pool.jobs] == list(study.allocators)
    assert f"0 of {len(study.allocators)} policies done" in texts(app)
    assert app.button(key="cancel")


def test_the_server_prepares_the_sample_and_start_says_so(visit: Open, pool: FakePool) -> None:
    assert "The result takes about two seconds." in texts(visit())
    prepare_sample()
    prepare_sample()
    study = new_study.sample_study()
    assert [job.scenario for job in pool.jobs] == study.scenarios()
    finish(pool, study)
    app = visit()
    assert "The result takes about two seconds." not in texts(app)
    (chart,) = app.get("plotly_chart")
    assert chart.proto.alt
    pool.jobs.clear()
    app.button(key="run_sample").click().run()
    sound(app)
    assert [job.state for job in pool.jobs] == ["done"] * len(study.allocators)
    assert "Stored result, computed" in texts(app)


def test_the_server_deletes_what_is_old_once_it_is_up_for_an_hour(
    pool: FakePool, tmp_path: Path
) -> None:
    clock = SetClock()
    pool.store = Store(tmp_path / "old", clock=clock)
    old = pool.store.put_trace(new_study.load_trace(new_study.sample_study("tiny").base.trace))
    clock.go_on(31.0)
    pool.store.put_numbers("ab" * 16, {}, {})
    pool.store = Store(tmp_path / "old", clock=clock)
    delete_expired()
    assert pool.store.trace_info(old) is not None
    clock.go_on(1 / 24)
    delete_expired.clear()
    delete_expired()
    assert pool.store.trace_info(old) is None


def test_start_has_a_door_for_each_visitor(visit: Open) -> None:
    app = visit()
    # After those of the four chips.
    doors = [link.proto.label for link in app.main.get("page_link")][4:]
    assert doors == ["**Load a job trace**", "**Decide what to buy**", "**Learn or teach**"]


@pytest.mark.parametrize("card", cards(), ids=CARDS)
def test_a_card_of_a_paper_is_one_click_from_its_comparison(
    visit: Open, pool: FakePool, card: ReplayCard
) -> None:
    app = visit()
    for text in (card.note, *(figure.title for figure in card.figures)):
        assert text in texts(app)
    app.button(key=f"paper/{card.replay}").click().run()
    sound(app)
    study = card_study(card)
    assert study_of(app).matches(study)
    assert [job.scenario for job in pool.jobs] == study.scenarios()
    assert f"0 of {len(study.allocators)} policies done" in texts(app)


def test_a_scenario_file_is_opened(visit: Open, tiny: Study) -> None:
    app = visit()
    app.file_uploader(key="scenario_file").set_value(
        ("mine.json", json.dumps(tiny.to_json()).encode(), "application/json")
    ).run()
    sound(app)
    assert study_of(app) == tiny


def test_a_broken_scenario_file_gets_one_sentence_and_changes_nothing(visit: Open) -> None:
    app = visit()
    before = app.query_params["s"]
    app.file_uploader(key="scenario_file").set_value(
        ("mine.json", b"{nonsense", "application/json")
    ).run()
    assert len(app.error) == 1
    assert "mine.json" in app.error[0].value
    assert app.query_params["s"] == before


def test_a_damaged_address_is_said_and_the_sample_opens(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    good = visit("start", tiny)
    assert "Twelve jobs" in texts(good)
    del pool
    damaged = visit()
    damaged.query_params["s"] = "AAAA"
    del damaged.session_state[state._SESSION]
    damaged.run()
    assert [error.value for error in damaged.error] == [
        "The scenario in the URL is damaged. Copy the whole URL again."
    ]
    assert study_of(damaged).base.trace.source == "sample:week"


def test_seed_changes_the_scenario_and_marks_the_result_as_old(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("start", tiny)
    assert "Up to date" in texts(app)
    chip(app.number_input, "seed").set_value(5).run()
    assert study_of(app).base.seed == 5
    assert study_of(app, "r") == tiny
    assert "seed 0 → 5" in texts(app)


def test_an_address_cannot_make_the_server_read_its_files(
    visit: Open, tiny: Study, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("job_id,submit_time_s,num_gpus,duration_s\nx,0,1,5\n")
    app = visit("start", replace(tiny, base=replace(tiny.base, trace=TraceSpec(str(secret)))))
    assert "Load it on the Trace page" in app.error[0].value
    assert study_of(app).base.trace.source == "sample:week"


def test_a_scenario_file_for_another_machine_keeps_the_trace_that_is_there(
    visit: Open, tiny: Study
) -> None:
    app = visit()
    away = replace(tiny, base=replace(tiny.base, trace=TraceSpec("/data/month.txt"), seed=9))
    app.file_uploader(key="scenario_file").set_value(
        ("cli.json", json.dumps(away.to_json()).encode(), "application/json")
    ).run()
    sound(app)
    assert "/data/month.txt" in app.info[0].value
    assert (study_of(app).base.trace.source, study_of(app).base.seed) == ("sample:week", 9)

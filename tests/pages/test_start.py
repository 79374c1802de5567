from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pages.conftest import FakePool, Open, chip, drop, finish, sound, study_of, texts
from tests.shared import SetClock
from trainyard.labs.replays.cards import card_study
from trainyard.labs.replays.reading import CARDS, cards
from trainyard.labs.replays.types import ReplayCard
from trainyard.library import archive, library
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study
from ui import state
from ui.layout import PAGES
from ui.server import delete_expired, prepare_sample


def test_start_offers_one_primary_button_and_the_first_sample(visit: Open) -> None:
    app = visit()
    assert [button.label for button in app.button if button.proto.type == "primary"] == [
        "Run the sample"
    ]
    assert study_of(app).base.trace.source == "sample:week"


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


def test_start_leads_to_the_tutorial_and_every_page(visit: Open) -> None:
    links = [link.proto for link in visit().main.get("page_link")]
    assert [link.page for link in links[: len(PAGES)]] == ["", *[*PAGES][1:]]
    (tutorial,) = links[len(PAGES) :]
    assert (tutorial.label, tutorial.page) == ("Tutorial, 10 min", "docs")
    assert "tutorial%2Ffirst-comparison.md" in tutorial.query_string


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


@pytest.mark.parametrize("page", ["start", "trace"])
def test_a_dropped_scenario_opens_on_compare(visit: Open, tiny: Study, page: str) -> None:
    app = drop(visit(page), "mine.json", json.dumps(tiny.to_json()).encode())
    sound(app)
    assert study_of(app) == tiny
    assert app.session_state[state._SESSION].page == "compare"
    assert [info.value for info in app.info] == ["mine.json is open. Press Run to see its results."]


def test_a_dropped_trace_opens_on_trace_and_exported_runs_join_the_list(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    jobs = "job_id,submit_time_s,num_gpus,duration_s\n" + "".join(
        f"j{at},{at},1,9\n" for at in range(12)
    )
    app = drop(visit(), "twelve.csv", jobs.encode())
    sound(app)
    assert app.session_state[state._SESSION].page == "trace"
    assert "twelve.csv: 12 jobs" in texts(app)
    elsewhere = Store(pool.store.root / "elsewhere")
    library.shelve(elsewhere, "me", tiny, [])
    data, _ = archive.pack_items(
        elsewhere, "me", [one.id for one in library.items(elsewhere, "me")]
    )
    app = drop(app, "runs.zip", data)
    sound(app)
    assert app.session_state[state._SESSION].page == "start"
    assert "1 entry is imported from runs.zip to Your runs." in app.info[0].value


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"allocators": [], "nonsense": 1}', "The earlier scenario stays open."),
        (b"{nonsense", "mine.json"),
        (b"", "mine.json"),
    ],
)
def test_a_file_that_cannot_be_used_gets_one_sentence_and_changes_nothing(
    visit: Open, data: bytes, said: str
) -> None:
    app = visit()
    before = app.query_params["s"]
    drop(app, "mine.json", data)
    sound(app)
    assert [said in error.value for error in app.error] == [True]
    assert app.query_params["s"] == before


def test_a_damaged_address_is_said_and_the_sample_opens(visit: Open, pool: FakePool) -> None:
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
    app = visit("policies", tiny)
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
    drop(app, "cli.json", json.dumps(away.to_json()).encode())
    sound(app)
    assert "/data/month.txt" in app.info[0].value
    assert (study_of(app).base.trace.source, study_of(app).base.seed) == ("sample:week", 9)

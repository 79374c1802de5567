"""The scenario beside every page: what can be changed, taken back, kept and passed on there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from sim.errors import TrainyardError
from sim.params import Spec
from tests.pages.conftest import ROOT, FakePool, Open, chip, drop, finish, sound, study_of, texts
from tests.pages.test_compare import component
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import bundle, new_study
from trainyard.traces.sources import load_trace
from trainyard.views.charts import visible
from ui import browser_identity, state
from ui.words import plain

HOSTILE = '"><script>alert(1)</script> **b** \u202e'


def labels(app: AppTest) -> list[str]:
    return [button.proto.label for button in app.get("download_button")]


def test_repeats_are_part_of_the_scenario(visit: Open, tiny: Study) -> None:
    app = visit("policies", tiny)
    chip(app.number_input, "repeats").set_value(3).run()
    sound(app)
    assert study_of(app) == replace(tiny, repeats=3)


def test_undo_takes_one_change_back_after_another(visit: Open, tiny: Study) -> None:
    app = visit("policies", tiny)
    assert not [button for button in app.button if button.key == "undo"]
    chip(app.number_input, "seed").set_value(5).run()
    chip(app.number_input, "repeats").set_value(3).run()
    undo = next(button for button in app.button if button.key == "undo")
    assert undo.proto.help == "Reverts: repeats 1 → 3"
    undo.click().run()
    assert (study_of(app).base.seed, study_of(app).repeats) == (5, 1)
    assert [chip(app.number_input, name).value for name in ("seed", "repeats")] == [5, 1]
    next(button for button in app.button if button.key == "undo").click().run()
    assert study_of(app) == tiny
    assert not [button for button in app.button if button.key == "undo"]


def cluster(app: AppTest) -> None:
    app.text_input(key="cluster_spec").set_value("3x8:a100").run()
    app.button(key="use_spec").click().run()


def preset(app: AppTest) -> None:
    [*_, last] = [button for button in app.button if str(button.key).startswith("preset/")]
    last.click().run()


def load(app: AppTest) -> None:
    chip(app.number_input, "load").set_value(2.0).run()


def window(app: AppTest) -> None:
    chip(app.selectbox, "from").select_index(1).run()


def nodes(app: AppTest) -> None:
    chip(app.number_input, "nodes/0").set_value(2).run()


def policy(app: AppTest) -> None:
    box = chip(app.button_group, "policies")
    box.set_value([*box.value, "sjf"]).run()


@pytest.mark.parametrize(
    ("page", "change"),
    [
        ("cluster", cluster),
        ("cluster", preset),
        ("trace", load),
        ("trace", window),
        ("cluster", nodes),
        ("policies", policy),
    ],
)
def test_undo_takes_back_what_a_page_did(visit: Open, tiny: Study, page: str, change: Any) -> None:
    app = visit(page, tiny)
    change(app)
    sound(app)
    assert study_of(app) != tiny
    next(button for button in app.button if button.key == "undo").click().run()
    sound(app)
    assert study_of(app) == tiny
    # Nothing on the page makes the change again.
    app.run()
    assert study_of(app) == tiny


def test_no_more_repeats_can_be_asked_for_than_one_click_can_start(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    pool.most_each = 5 * len(tiny.allocators)
    app = visit("policies", tiny)
    assert next(box for box in app.number_input if box.label == "Repeats").max == 5


def test_run_keeps_what_is_shown_until_a_policy_is_complete(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    other = state.with_seed_and_repeats(tiny, 5, 1)
    chip(app.number_input, "seed").set_value(5).run()
    app.button(key="run").click().run()
    mine: state.Session = app.session_state[state._SESSION]
    assert (mine.displayed_study, mine.pending_study) == (tiny, other)
    assert study_of(app, "r") == tiny
    assert app.query_params["go"] in ("1", ["1"])
    # A reload takes the runs up again, and shows the same meanwhile.
    del app.session_state[state._SESSION]
    app.run()
    mine = app.session_state[state._SESSION]
    assert (mine.displayed_study, mine.pending_study) == (tiny, other)
    finish(pool, other, [0])
    for job in pool.jobs[-len(tiny.allocators) :][:1]:
        job.state = "done"
    app.run()
    assert (mine.displayed_study, mine.pending_study) == (other, None)


def test_a_run_of_one_more_policy_on_policies_shows_the_earlier_result_until_it_is_complete(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    fewer = new_study.with_policies(tiny, tiny.allocators[:-1], 0)
    finish(pool, fewer)
    app = visit("compare", fewer)
    before = component(app, "ledger")
    app.switch_page("pages/policies.py").run()
    mine: state.Session = app.session_state[state._SESSION]
    mine.edit(tiny)
    app.run().button(key="run").click().run()
    sound(app)
    assert [job.state for job in pool.jobs] == ["done"] * len(fewer.allocators) + ["running"]
    assert (mine.page, mine.displayed_study, mine.pending_study) == ("compare", fewer, tiny)
    assert component(app, "ledger") == before
    finish(pool, tiny)
    pool.jobs[-1].state = "done"
    app.run()
    assert (mine.displayed_study, mine.pending_study) == (tiny, None)


def test_what_is_cancelled_before_a_policy_was_complete_leaves_what_is_shown(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    chip(app.number_input, "seed").set_value(5).run()
    app.button(key="run").click().run()
    app.button(key="cancel").click().run()
    sound(app)
    mine: state.Session = app.session_state[state._SESSION]
    assert (mine.displayed_study, mine.pending_study, mine.live_jobs) == (tiny, None, [])
    assert "seed 0 → 5" in texts(app)


def test_the_last_policy_stays_and_variants_too(visit: Open, tiny: Study) -> None:
    twice = replace(tiny, allocators=(*tiny.allocators, Spec.of("easy", order="priority")))
    app = visit("policies", twice)
    box = chip(app.button_group, "policies")
    box.set_value(["easy"]).run()
    assert [spec.name for spec in study_of(app).allocators] == ["easy", "easy"]
    box = chip(app.button_group, "policies")
    box.set_value([]).run()
    assert len(study_of(app).allocators) == 2


def test_a_cluster_without_nodes_is_refused_in_one_sentence(visit: Open, tiny: Study) -> None:
    app = visit("policies", tiny)
    for at in range(len(tiny.base.cluster.groups)):
        chip(app.number_input, f"nodes/{at}").set_value(0).run()
    sound(app)
    assert any("no nodes" in error.value for error in app.error)
    assert study_of(app).base.cluster.gpus > 0


def test_the_history_is_bounded(tiny: Study, pool: FakePool) -> None:
    del pool
    mine = state.Session(tiny)
    for seed in range(1, 61):
        mine.edit(state.with_seed_and_repeats(tiny, seed, 1))
    assert len(mine.undo_stack) == 50
    for _ in range(60):
        mine.undo()
    assert mine.study.base.seed == 10


def test_a_name_goes_into_the_link_and_changes_no_result(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("policies", tiny)
    app.session_state["share"] = True
    app.run()
    app.text_input(
        key=next(box.key for box in app.text_input if box.label == "Scenario name")
    ).set_value(HOSTILE).run()
    sound(app)
    assert study_of(app).base.name == HOSTILE.strip()
    assert "Up to date" in texts(app)
    assert app.query_params["r"] in ("1", ["1"])
    app.switch_page("pages/start.py").run()
    sound(app)
    (listed,) = [
        button.label for button in app.main.button if str(button.key).startswith("runs/open/")
    ]
    assert listed == plain(visible(HOSTILE))


def test_share_offers_the_files(visit: Open, tiny: Study) -> None:
    app = visit("policies", tiny)
    app.session_state["share"] = True
    app.run()
    assert labels(app) == ["Scenario file", "Report (HTML)", "Tables and job data (ZIP)"]


def test_a_shared_link_is_short_and_opens_the_same_view(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    app.session_state[state._SESSION].window = (60.0, 600.0)
    app.session_state["share"] = True
    app.run()
    (html,) = [item.proto.body for item in app.get("html") if 'class="ty-link"' in item.proto.body]
    link = html.partition('value="')[2].partition('"')[0]
    assert len(link) <= state.MAX_LINK
    key = link.partition("?link=")[2]
    other = AppTest.from_file(str(ROOT / "app.py"), default_timeout=300)
    other.query_params.update({"link": key, "page": "compare"})
    other.run()
    sound(other)
    assert study_of(other) == tiny
    assert "link" not in other.query_params
    assert other.session_state[state._SESSION].window == (60.0, 600.0)
    assert not other.error
    # Deleted with what else is old.
    pool.store.index.drop("link", [key])
    for gone in (key, "<img>", "9" * 400):
        late = AppTest.from_file(str(ROOT / "app.py"), default_timeout=300)
        late.query_params["link"] = gone
        late.run()
        sound(late)
        assert [error.value for error in late.error] == [
            "This link is no longer on the server, which keeps links for 30 days."
        ]


@pytest.mark.parametrize(
    ("host", "is_own"),
    [("localhost", True), ("127.0.0.2", True), ("0.0.0.0", True), ("[::1]", True), ("lab", False)],
)
def test_share_says_that_a_link_of_this_computer_opens_here_only(
    visit: Open, tiny: Study, monkeypatch: pytest.MonkeyPatch, host: str, is_own: bool
) -> None:
    monkeypatch.setattr(state, "link", lambda: f"http://{host}:8501/policies?s=x")
    app = visit("policies", tiny)
    app.session_state["share"] = True
    app.run()
    assert ("The link opens on this computer only." in texts(app)) == is_own


def test_an_archive_brings_its_jobs_and_shows_stored_results(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("start")
    drop(app, "mine.zip", bundle.scenario_archive(tiny, pool.store))
    sound(app)
    assert study_of(app) == tiny
    assert "mine.zip is open with 12 jobs" in app.info[0].value
    assert app.session_state[state._SESSION].page == "compare"
    assert "Up to date" in texts(app)


def test_what_the_top_says_of_missing_jobs_follows_the_file_that_is_opened(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    kept = replace(
        tiny,
        base=replace(
            tiny.base, trace=TraceSpec(f"store:{pool.store.put_trace(load_trace(tiny.base.trace))}")
        ),
    )
    whole, alone = bundle.scenario_archive(kept, pool.store), bundle.scenario_text(kept).encode()
    pool.store.delete_trace(kept.base.trace.source.partition(":")[2])
    app = drop(visit("start", kept), "mine.json", alone)
    sound(app)
    assert ["The trace is not on this server" in error.value for error in app.error] == [True]
    assert "Its jobs are still missing." in app.info[0].value
    drop(app.switch_page("pages/trace.py").run(), "mine.zip", whole)
    sound(app)
    assert not app.error
    assert [info.value for info in app.info] == [
        "mine.zip is open with 12 jobs. Press Run to see its results."
    ]


def test_a_deleted_trace_goes_with_its_results_and_out_of_the_history(
    visit: Open, tiny: Study, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = pool.store.put_trace(load_trace(tiny.base.trace), owners=["me"])
    kept = replace(tiny, base=replace(tiny.base, trace=TraceSpec(f"store:{digest}")))
    finish(pool, kept)
    app = visit("policies", kept)
    mine = app.session_state[state._SESSION]
    mine.undo_stack.extend([kept, tiny, kept])
    monkeypatch.setattr(state, "session", lambda: mine)
    monkeypatch.setattr(browser_identity, "owner", lambda: "a visitor")
    with pytest.raises(TrainyardError, match="Another browser uploaded this trace"):
        state.forget_trace(digest)
    monkeypatch.setattr(browser_identity, "owner", lambda: "me")
    other = pool.submit(kept.policy_scenarios(0)[0], "somebody else", again=True)
    with pytest.raises(TrainyardError, match="Another session is running this trace"):
        state.forget_trace(digest)
    other.cancel()
    assert state.forget_trace(digest) == len(tiny.allocators)
    mine.edit(tiny)
    assert list(mine.undo_stack) == [tiny]
    mine.edit(kept)
    app.run()
    assert "The trace is not on this server" in app.error[0].value


def test_a_study_file_is_written_for_people_too(tiny: Study) -> None:
    text = bundle.scenario_text(tiny)
    assert json.loads(text) == tiny.to_json()
    assert text == bundle.scenario_text(Study.from_json(json.loads(text)))

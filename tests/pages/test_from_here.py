from __future__ import annotations

from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from sim.cluster import Cluster
from sim.params import Spec
from tests.pages.conftest import FakePool, Open, finish, own, sound, study_of, texts
from trainyard.library import library
from trainyard.runs.run import run, scenario_key, store_result
from trainyard.study import branch_point
from trainyard.study.branch_point import BranchPoint, FromHere
from trainyard.study.study import Study
from trainyard.traces.sources import load_trace
from ui import browser_identity

AT = 300.0


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_identity, "owner", lambda: "me")


def on_tab(visit: Open, study: Study, **more: str) -> AppTest:
    app = visit("plan", study)
    app.query_params["tab"] = "from-here"
    for name, value in more.items():
        app.query_params[name] = value
    app.switch_page("pages/plan.py").run()
    sound(app)
    return app


@pytest.fixture
def two(tiny: Study) -> Study:
    base = replace(tiny.base, cluster=Cluster.parse("2x4:v100"))
    return Study(base, (Spec("fifo"), Spec("srtf")))


def stored(pool: FakePool, study: Study, turn: BranchPoint) -> None:
    scenario = branch_point.branch(study, 0, turn).here
    trace = load_trace(scenario.trace, pool.store)
    store_result(
        pool.store, scenario_key(scenario, pool.store), scenario, run(scenario, trace=trace), trace
    )


def primary(app: AppTest) -> list[str]:
    return [button.label for button in app.button if button.proto.type == "primary"]


def test_without_a_run_there_is_nothing_to_begin_with(visit: Open, two: Study) -> None:
    app = on_tab(visit, two)
    assert "no run to change yet" in texts(app)
    assert not app.slider


def test_what_changes_is_asked_and_run(visit: Open, two: Study, pool: FakePool) -> None:
    finish(pool, two)
    app = on_tab(visit, two, p="0", at=f"{AT:.0f}", r="1")
    assert "Choose a change" in texts(app)
    app.selectbox(key="from_here/policy/0").select("srtf").run()
    app.number_input(key="from_here/add/0/0").set_value(2).run()
    sound(app)
    asked = app.query_params["turn"]
    turn = BranchPoint.unpack(asked if isinstance(asked, str) else asked[0])
    assert (turn.at_s, turn.added) == (AT, ((0, 2),))
    assert turn.policy is not None
    assert turn.policy.name == "srtf"
    assert [label.startswith("Run: about ") for label in primary(app)] == [True]
    app.button(key="from_here/run").click().run()
    sound(app)
    kept = library.items(pool.store, "me")[0]
    assert kept.recipe() == FromHere(two, 0, turn)
    assert kept.title.endswith("from day 1, 00:05:00 on with SRTF and 2 more nodes like v100-1")
    assert [(job.state, job.scenario.cluster.gpus) for job in pool.jobs] == [
        ("done", 8),
        ("running", 16),
    ]
    app.button(key="from_here/cancel").click().run()
    assert pool.jobs[1].state == "cancelled"
    assert "Cancelled" in texts(app)


def test_what_came_of_it(visit: Open, two: Study, pool: FakePool) -> None:
    finish(pool, two)
    turn = BranchPoint(AT, Spec("srtf"))
    stored(pool, two, turn)
    app = on_tab(visit, two, p="0", turn=turn.pack(), r="1")
    read = texts(app)
    assert "nothing changed before" in read
    assert "Up to the line both runs are equal." in read
    assert "from-here-on" in [chart.key for chart in app.get("plotly_chart")]
    assert library.items(pool.store, "me")[0].recipe() == FromHere(
        two, 0, turn
    )  # as whatever is opened by a link
    assert list(app.table[0].value.columns) == [
        "Of",
        "Metric",
        "As it was",
        "From here on",
        "Change",
    ]
    assert not [button for button in app.button if button.key == "from_here/run"]
    app.button(key="from_here/compare").click().run()
    sound(app)
    opened = study_of(app)
    assert opened.allocators == (Spec("fifo"), branch_point.branch(two, 0, turn).here.allocator)


def test_a_job_opens_its_drawer(visit: Open, two: Study, pool: FakePool) -> None:
    finish(pool, two)
    turn = BranchPoint(AT, policy=Spec("srtf"))
    stored(pool, two, turn)
    app = on_tab(visit, two, p="0", turn=turn.pack(), job="5")
    (drawer,) = app.get("dialog")
    assert drawer.proto.dialog.title.startswith("Job ")
    assert "Waited to start" in texts(app)
    # These are not the runs that Compare and Explore show.
    assert not [one for one in app.button if one.label == "Show on the timeline"]
    assert any("Difference (min)" in one.value.columns for one in app.dataframe)


def test_other_machines_cannot_be_compared_there(visit: Open, two: Study, pool: FakePool) -> None:
    finish(pool, two)
    turn = BranchPoint(AT, lost=(two.base.cluster.nodes[0].name,), until_s=AT + 3600)
    stored(pool, two, turn)
    app = on_tab(visit, two, p="0", turn=turn.pack(), r="1")
    assert app.multiselect[0].value == [two.base.cluster.nodes[0].name]
    assert app.number_input(key="from_here/back/1").value == 1
    assert "different clusters" in texts(app)
    assert "without v100-1-1 until" in texts(app).replace("\\", "")


@pytest.mark.parametrize(
    "damaged",
    [
        "nonsense",
        BranchPoint(AT, lost=("elsewhere",)).pack(),
        BranchPoint(AT, added=((7, 1),)).pack(),
    ],
)
def test_an_address_that_does_not_fit_is_no_fault(
    visit: Open, two: Study, pool: FakePool, damaged: str
) -> None:
    finish(pool, two)
    app = on_tab(visit, two, turn=damaged, r="1")
    assert "Choose a change" in texts(app)


def test_a_fault_of_the_run_is_said(visit: Open, two: Study, pool: FakePool) -> None:
    finish(pool, two)
    app = on_tab(visit, two, turn=BranchPoint(AT, Spec("srtf")).pack(), r="1")
    app.button(key="from_here/run").click().run()
    pool.jobs[1].state, pool.jobs[1].error = "failed", "The run was stopped by a test."
    app.run()
    sound(app)
    assert "stopped by a test" in texts(app)
    assert len(primary(app)) == 1


def test_a_reload_takes_the_run_up_again_and_who_cancelled_does_not(
    visit: Open, two: Study, pool: FakePool
) -> None:
    finish(pool, two)
    turn = BranchPoint(AT, Spec("srtf"))
    on_tab(visit, two, p="0", turn=turn.pack(), r="1").button(key="from_here/run").click().run()
    app = on_tab(visit, two, p="0", turn=turn.pack(), r="1")
    assert not primary(app)
    assert len({job.watcher for job in pool.jobs if not job.has_ended}) == 2
    app.button(key="from_here/cancel").click().run()
    assert len(primary(app)) == 1
    assert "Cancelled" in texts(app)


def test_the_library_opens_it_where_it_was_asked(visit: Open, two: Study, pool: FakePool) -> None:
    finish(pool, two)
    turn = BranchPoint(AT, lost=(two.base.cluster.nodes[0].name,), until_s=AT + 3600)
    stored(pool, two, turn)
    recipe = FromHere(two, 1, turn)
    library.shelve(
        pool.store,
        "me",
        recipe,
        [
            scenario_key(scenario, pool.store)
            for scenario in (recipe.branch.was, recipe.branch.here)
        ],
    )
    app = visit()
    next(button for button in app.button if "from day 1" in button.label).click().run()
    sound(app)
    assert app.query_params["turn"] in (turn.pack(), [turn.pack()])
    assert next(
        box for box in app.multiselect if not str(box.key).startswith("chip/")
    ).value == list(turn.lost)
    assert own(app)[0].value == "1"
    assert study_of(app) == two


def test_explore_leads_here_with_its_instant(visit: Open, two: Study, pool: FakePool) -> None:
    finish(pool, two)
    app = visit("explore", two)
    app.query_params["at"] = "420"
    app.run()
    sound(app)
    link = next(
        item.proto for item in app.get("page_link") if item.proto.label == "Switch policy here"
    )
    assert "tab=from-here" in link.query_string
    assert "at=420" in link.query_string

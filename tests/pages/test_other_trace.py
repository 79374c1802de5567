"""Widget state belongs to a trace: a browser goes on sending what the fields of closed menus held
before, and nothing of it may reach the next trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, permutations
from typing import Any, Final

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from pages import plan
from sim.trace import Trace
from tests.pages.conftest import FakePool, Open, finish, sound, told_times
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.samples import SAMPLES
from ui import state

LONG: Final = pd.DataFrame(
    {
        "job_id": [f"long{at}" for at in range(12)],
        "submit_time_s": [86_400.0 * 5 * at for at in range(12)],
        "num_gpus": [1, 2, 4, 8] * 3,
        "duration_s": [7200.0] * 12,
        "user": ["ann", "bob", "cy"] * 4,
        "vc": ["vcA", "vcB"] * 6,
    }
)
SHORT: Final = LONG.assign(
    job_id=[f"short{at}" for at in range(12)],
    submit_time_s=[60.0 * at for at in range(12)],
    start_time_s=[60.0 * at for at in range(12)],
)


def in_menus(node: Any, *, inside: bool = False) -> Iterator[str]:
    """Yield the ids of the widgets in menus, which the browser draws only while they are open."""
    for child in getattr(node, "children", {}).values():
        proto = getattr(child, "proto", None)
        menu = inside or getattr(child, "type", "") == "popover"
        if inside and getattr(proto, "id", ""):
            yield proto.id
        yield from in_menus(child, inside=menu)


def run_with_old_fields(app: AppTest, before: Any, menus: set[str]) -> None:
    """Run as a browser does whose menus are closed: their fields still hold what they held."""
    states = app._tree.get_widget_states()
    old = {one.id: one for one in before.widgets if one.id in menus}
    for one in states.widgets:
        if one.id in old:
            one.CopyFrom(old[one.id])
    app._run(states)


def take_trace(app: AppTest, study: Study) -> None:
    """Give the session another trace, as an upload, a sample or Undo do, with all menus closed."""
    before, menus = app._tree.get_widget_states(), set(in_menus(app._tree))
    mine: state.Session = app.session_state[state._SESSION]
    if mine.page == "trace":
        mine.edit(study)
    else:
        mine.replace(study)
    if mine.displayed_study is not None:
        mine.displayed_study = mine.study
    app.run()
    sound(app)
    run_with_old_fields(app, before, menus)
    sound(app)
    shown: state.Session = app.session_state[state._SESSION]
    assert shown.study == mine.study == study, "an old field has changed the scenario"


@pytest.fixture
def traces(pool: FakePool) -> dict[str, Study]:
    """Each sample, and two uploads: one of two months without starts, one of minutes with them."""
    uploads = [f"store:{pool.store.put_trace(Trace.of(frame))}" for frame in (LONG, SHORT)]
    named = {f"sample:{name}": new_study.sample_study(name) for name in SAMPLES}
    first = new_study.sample_study()
    return named | {
        source: new_study.with_trace(first, TraceSpec(source), pool.store) for source in uploads
    }


def walk(names: list[str]) -> list[str]:
    """Return an order of visits in which every trace follows every other one."""
    return [
        name
        for at, one in enumerate(names)
        for name in (one, *(step for other in names[at + 1 :] for step in (other, one)))
    ]


def test_fields_of_closed_menus_bring_nothing_into_the_next_trace(
    visit: Open, traces: dict[str, Study]
) -> None:
    order = walk(list(traces))
    assert set(permutations(traces, 2)) <= set(pairwise(order))
    app = visit("policies", traces[order[0]])
    for name in order[1:]:
        take_trace(app, traces[name])


PLACES: Final = {
    "trace": {"": ("",)},
    "cluster": {"": ("",)},
    "policies": {"": ("",)},
    "compare": {
        "compare_tabs": (
            *("Jobs", "Where time goes", "Tenants", "GPU types", "Cost", "Accuracy", "Export"),
        )
    },
    "explore": {"explore_tabs": ("Jobs waiting", "Jobs of a node", "All jobs")},
    "plan": {"plan_tab": tuple(title for title, _ in plan.TABS.values())},
    "learn": {"": ("",)},
}
"""Page -> key of its tabs -> all of them."""


@pytest.mark.slow
@pytest.mark.parametrize("page", PLACES)
def test_every_tab_of_a_page_bears_another_trace(
    visit: Open, traces: dict[str, Study], pool: FakePool, page: str
) -> None:
    """Forty jobs of each trace, so that there are results."""
    studies = [
        new_study.with_trace(study, replace(study.base.trace, sample=40), pool.store)
        for study in traces.values()
    ]
    for study in studies:
        finish(pool, study)
    for key, tabs in PLACES[page].items():
        app = visit(page, studies[0])
        for tab in tabs:
            for study in (*studies, studies[0]):
                if key:
                    app.session_state[key] = tab
                take_trace(app, study)
                assert not told_times(app)


def test_a_zoom_window_belongs_to_a_trace(
    visit: Open, traces: dict[str, Study], pool: FakePool
) -> None:
    tiny, other = traces["sample:tiny"], traces[list(traces)[-1]]
    for study in (tiny, other):
        finish(pool, study)
    app = visit("compare", tiny)
    mine: state.Session = app.session_state[state._SESSION]
    mine.window = (600.0, 1800.0)
    app.run()
    assert app.query_params["t0"] in ("600", ["600"])
    for study, known in ((other, False), (tiny, True)):
        mine.edit(study)
        mine.displayed_study = study
        app.run()
        sound(app)
        assert mine.window == ((600.0, 1800.0) if known else None)
        assert ("t0" in app.query_params) == known
    # Twice the load is the same trace; from another submission on it is another.
    for part, known in ({"load": 2.0}, True), ({"from_s": 60.0}, False):
        trace = replace(tiny.base.trace, **part)
        mine.displayed_study = replace(tiny, base=replace(tiny.base, trace=trace))
        assert (mine.window is not None) == known


def test_a_window_of_the_address_after_the_runs_is_dropped(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("policies", tiny)
    app.session_state[state._SESSION].window = (1e9, 2e9)
    app.switch_page("pages/compare.py").run()
    sound(app)
    assert app.session_state[state._SESSION].window is None
    assert "t0" not in app.query_params

"""One way to write an instant and a duration on all pages."""

from __future__ import annotations

import json
import re

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.conftest import FakePool, Open, finish, sound, texts
from trainyard.study.study import Study
from trainyard.traces import new_study
from ui import state

PAGES = ("start", "trace", "cluster", "policies", "compare", "explore", "plan", "learn")
NEVER = (
    r"since the first submission",
    r"\d\.\d\d (?:h|hours)\b",
    r"\bday \d+ \d\d:\d\d",
    r"\b\d{4}-\d\d-\d\d \d\d:\d\d",
)


def everything(app: AppTest) -> str:
    """All that can be read: texts, labels of controls, and words within figures."""
    found = [texts(app)]
    for kind in ("html", "button", "slider", "number_input", "text_input", "selectbox", "metric"):
        found += [str(one.proto) for one in app.get(kind)]
    for chart in app.get("plotly_chart"):
        layout = json.loads(chart.proto.spec or "{}").get("layout", {})
        found.append(json.dumps(layout, ensure_ascii=False))
    return "\n".join(found)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("calendar", [False, True])
def test_no_page_writes_an_instant_or_a_duration_otherwise(
    visit: Open, tiny: Study, pool: FakePool, page: str, calendar: bool
) -> None:
    finish(pool, tiny)
    app = visit(page, tiny)
    app.session_state[state._SESSION].calendar = calendar
    app.run()
    read = everything(app)
    assert len(read) > 200
    assert [found[0] for rule in NEVER for found in re.finditer(rule, read)] == []
    if page == "compare":
        assert re.search(r"\bday 1\b", read)


def test_one_switch_writes_dates_on_all_pages(visit: Open, pool: FakePool) -> None:
    week = new_study.sample_study()
    finish(pool, week, [0, 2])
    app = visit("compare", week)
    assert "Sat 6 Jan" not in everything(app)
    app.toggle(key="chip/calendar").set_value(True).run()
    sound(app)
    read = everything(app)
    assert "Sat 6 Jan" in read
    assert not re.search(r"\bday \d", read)
    assert app.query_params["cal"] in ("1", ["1"])
    app.switch_page("pages/explore.py").run()
    sound(app)
    assert re.search(r"[A-Z][a-z]{2} \d+ Jan, \d\d:\d\d", everything(app))

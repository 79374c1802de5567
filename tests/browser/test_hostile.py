from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import report
from tests.pages import hostile
from tests.pages.conftest import finish
from trainyard.results import outcomes
from trainyard.store import Store
from trainyard.study.study import Study

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CREATED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def study(store: Path) -> Study:
    kept: Any = SimpleNamespace(store=Store(store))
    made = hostile.study(kept.store)
    finish(kept, made)
    return made


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page; at the end nothing in a name may have run, and nothing may have been complained of."""
    context = browser.new_context(viewport={"width": 1200, "height": 1000}, accept_downloads=True)
    made = context.new_page()
    wrong: list[str] = []
    made.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    made.on("pageerror", lambda error: wrong.append(str(error)))
    yield made
    assert made.evaluate("window.hacked") is None
    assert wrong == []
    context.close()


def test_names_run_nothing_on_any_page(study: Study, app: str, page: Page) -> None:
    for name, sign in (("compare", ".js-plotly-plot"), ("explore", ".js-plotly-plot"), ("trace", ".js-plotly-plot"), ("cluster", "canvas")):
        page.goto(f"{app}/{name}?s={study.pack()}")
        page.locator(sign).first.wait_for(timeout=60_000)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("window.hacked") is None
        assert page.locator("img[src=x]").count() == 0
        # The button of Streamlit's tables would write formulas as they are.
        if name == "explore":
            page.locator("[data-testid=stDataFrame]").first.hover()
        expect(page.get_by_role("button", name="Download as CSV")).to_have_count(0)


def test_a_report_opens_without_a_network(study: Study, store: Path, page: Page, tmp_path: Path) -> None:
    kept = Store(store)
    file = tmp_path / "report.html"
    file.write_text(report.html(outcomes.gather(study, kept), kept, created=CREATED), encoding="utf-8")
    asked: list[str] = []
    said: list[str] = []
    page.context.set_offline(True)
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.goto(file.as_uri())
    page.wait_for_function("document.body.dataset.drawn > 0")
    figures = page.locator("figure")
    assert figures.locator(".main-svg").count() >= figures.count() > 4
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("getComputedStyle(document.body).backgroundColor == 'rgb(16, 20, 24)'")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save this chart as SVG").first.click()
    assert waiting.value.suggested_filename == "trainyard-timeline.svg"
    assert "<script" not in Path(waiting.value.path()).read_text("utf-8")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save the scenario").click()
    assert Study.from_json(json.loads(Path(waiting.value.path()).read_text("utf-8"))) == study
    assert {url.partition(":")[0] for url in asked} <= {"file", "blob"}
    assert said == []

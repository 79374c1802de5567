from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.waiting import idle, ready
from tests.pages import hostile
from tests.pages.conftest import finish
from trainyard.results import outcomes
from trainyard.store import Store
from trainyard.study.study import Study
from trainyard.views.report.page import offline_html

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAGES = (
    *("", "trace", "cluster", "policies", "compare?tab=types", "compare?tab=export"),
    *("compare?job=1", "explore", "plan", "plan?tab=sweep", "plan?tab=from-here", "learn"),
)
SIGNS = {
    "policies": ".ty-policies .row",
    "compare?job=1": "[role=dialog] .ty-life-name",
    "explore": "[data-testid=stDataFrame]",
    **dict.fromkeys(("plan", "plan?tab=sweep"), "[data-testid=stMain] .stButton:visible"),
    "plan?tab=from-here": "[data-testid=stMain] .stMultiSelect",
    "learn": "[data-testid=stMain] .stRadio",
}
"""What is there once a page is drawn; else its headline."""
CREATED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def study(store: Path) -> Study:
    kept: Any = SimpleNamespace(store=Store(store))
    made = hostile.study(kept.store)
    finish(kept, made)
    return made


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page; at the end nothing in a name may have run, and nothing may have been complained
    of.
    """
    context = browser.new_context(viewport={"width": 1200, "height": 1000}, accept_downloads=True)
    made = context.new_page()
    wrong: list[str] = []
    made.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on(
        "console",
        # Streamlit asks below each page for its own health first.
        lambda message: (
            wrong.append(message.text)
            if message.type == "error" and "/_stcore/" not in message.location["url"]
            else None
        ),
    )
    yield made
    assert made.evaluate("window.hacked") is None
    assert wrong == []
    context.close()


def test_names_run_nothing_on_any_page(study: Study, app: str, page: Page) -> None:
    named = replace(study, names=(hostile.IMAGE, "y" * 200, ""))
    seen = ""
    for path in PAGES:
        page.goto(f"{app}/{path}{'&' if '?' in path else '?'}s={named.pack()}&r=1")
        ready(page)
        expect(page.locator(SIGNS.get(path, "[data-testid=stMain] h1")).first).to_be_visible()
        idle(page)
        assert page.evaluate("window.hacked") is None
        assert page.locator("img[src=x]").count() == 0
        text = page.inner_text("body")
        seen += text
        assert not re.search("[xy]{200}", text), path
        # The button of Streamlit's tables would write formulas as they are.
        if path == "explore":
            page.locator("[data-testid=stDataFrame]").first.hover()
        expect(page.get_by_role("button", name="Download as CSV")).to_have_count(0)
    # As text, and what is long is cut.
    assert "<img src=x onerror=" in seen
    assert "<script>window.hacked" in seen
    assert re.search("x{20,}…", seen)


def test_a_report_opens_without_a_network(
    study: Study, store: Path, page: Page, tmp_path: Path
) -> None:
    kept = Store(store)
    file = tmp_path / "report.html"
    file.write_text(
        offline_html(outcomes.gather(study, kept), kept, created=CREATED), encoding="utf-8"
    )
    asked: list[str] = []
    said: list[str] = []
    page.context.set_offline(True)
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.goto(file.as_uri())
    # The report allows no eval, which `wait_for_function` needs.
    expect(page.locator("body")).to_have_attribute("data-drawn", re.compile("[1-9]"))
    figures = page.locator("figure")
    assert figures.locator(".main-svg").count() >= figures.count() > 4
    page.emulate_media(color_scheme="dark")
    expect(page.locator("body")).to_have_css("background-color", "rgb(16, 22, 29)")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save this chart as SVG").first.click()
    assert waiting.value.suggested_filename == "trainyard-queue.svg"
    assert "<script" not in Path(waiting.value.path()).read_text("utf-8")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save the scenario").click()
    assert Study.from_json(json.loads(Path(waiting.value.path()).read_text("utf-8"))) == study
    assert {url.partition(":")[0] for url in asked} <= {"file", "blob"}
    assert said == []

"""What only a browser can show of the frame: its size, its keys, and what happens to it while
results arrive, on small screens and without a server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Scheme
from tests.browser.server import serving
from tests.browser.waiting import idle
from trainyard.traces import new_study
from ui.headers import HEADERS
from ui.layout import PAGES, WITHOUT_BAR

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[..., Page]
MAX_STOPS = 7
GROUNDS: tuple[tuple[Scheme, str], ...] = (
    ("light", "rgb(255, 255, 255)"),
    ("dark", "rgb(16, 22, 29)"),
)
PARTS = (".st-key-bar_place", ".st-key-chip_trace", ".st-key-status", ".st-key-share")
_WATCH = """(parts) => {
  window.places = new Set();
  setInterval(() => {
    for (const part of parts) {
      const found = document.querySelector(part);
      const box = found ? found.getBoundingClientRect() : null;
      window.places.add(`${part} ${box && [box.x, box.y, box.width, box.height].map(Math.round)}`);
    }
  }, 20);
}"""
"""Notes where the parts of the bar are, many times a second."""


def address(app: str, name: str) -> str:
    return f"{app}/{name if name != 'start' else ''}"


@pytest.mark.parametrize("path", ["", "compare", "_stcore/health", "static/nothing.js"])
def test_every_answer_has_the_security_headers(sample_app: str, path: str) -> None:
    try:
        headers = urlopen(f"{sample_app}/{path}").headers
    except HTTPError as error:
        headers = error.headers
    assert {name: headers.get_all(name) for name in HEADERS} == {
        name: [value] for name, value in HEADERS.items()
    }


def test_every_page_of_the_scenario_has_the_bar_and_all_keep_the_security_policy(
    sample_app: str, visit: Visit
) -> None:
    page = visit(sample_app)
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    for name in PAGES:
        page.emulate_media(color_scheme="light")
        page.goto(address(sample_app, name))
        link = page.get_by_role("link", name=PAGES[name], exact=True)
        expect(link).to_have_attribute("aria-current", "page")
        bar = page.locator(".st-key-bar_place")
        expect(bar.get_by_role("button", name="Share")).to_have_count(int(name not in WITHOUT_BAR))
        for scheme, ground in GROUNDS:
            page.emulate_media(color_scheme=scheme)
            expect(page.get_by_test_id("stApp")).to_have_css("background-color", ground)
            idle(page)
            places = [(box["y"], box["height"]) for one in bar.all() if (box := one.bounding_box())]
            assert places == [(56, 40)] * (name not in WITHOUT_BAR), name
            primary = page.locator("[data-testid=stBaseButton-primary]:visible")
            assert primary.count() <= 1, name
    assert [text for text in told if "Content Security Policy" in text] == []


def test_the_keyboard_reaches_everything_in_four_stops(sample_app: str, visit: Visit) -> None:
    page = visit(f"{sample_app}/cluster")
    idle(page)
    page.get_by_role("link", name="Docs", exact=True).focus()
    reached = []
    for _ in range(MAX_STOPS + 1):
        page.keyboard.press("Tab")
        place = page.evaluate(
            "[...(document.activeElement.closest('.st-key-bar_place [class*=st-key-]')?.classList"
            " ?? [])].find((name) => name.startsWith('st-key-')) ?? ''"
        )
        if place:
            reached.append(place.removeprefix("st-key-"))
    assert reached == [
        "chip_trace",  # with the other three parts of the scenario behind arrows
        "status",
        "run",
        "share",
    ]
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_have_count(0)


def test_a_menu_opened_by_a_key_hands_over_the_focus(sample_app: str, visit: Visit) -> None:
    page = visit(f"{sample_app}/cluster")
    idle(page)
    chip = page.locator(".st-key-chip_runs button")
    chip.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.closest('[data-testid=stPopoverBody]')")
    page.keyboard.press("Escape")
    expect(chip).to_be_focused()


def test_run_keeps_what_is_shown_the_focus_and_the_place_of_the_bar(
    sample_app: str, visit: Visit
) -> None:
    study = new_study.sample_study("tiny")
    study = replace(study, base=replace(study.base, seed=5))
    page = visit(f"{sample_app}/compare?s={study.pack()}")
    page.get_by_role("button", name="Run this scenario").click()
    bar = page.locator(".st-key-bar")
    expect(bar.get_by_text("Up to date")).to_be_visible()
    idle(page)
    page.evaluate(_WATCH, list(PARTS))
    bar.locator(".st-key-chip_runs button").click()
    field = page.get_by_label("Repeats", exact=True)
    field.fill("3")
    field.press("Enter")
    expect(bar.get_by_text("3 runs, seed 5")).to_be_visible()
    expect(field).to_be_focused()
    page.keyboard.press("Escape")
    run = bar.get_by_role("button", name="Run", exact=True)
    expect(run).to_have_attribute("data-testid", "stBaseButton-primary")
    run.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("No result yet")).to_have_count(0)
    expect(bar.get_by_text("Up to date")).to_be_visible()
    idle(page)
    page.wait_for_function("document.activeElement.closest('.st-key-status')")
    # Each part was in one place all the time, and never gone.
    places = page.evaluate("[...window.places]")
    assert len(places) == len(PARTS), "\n".join(places)


@pytest.mark.parametrize("width", [800, 390])
def test_small_screens_have_all_of_the_bar_and_no_sideways_scroll(
    sample_app: str, visit: Visit, width: int
) -> None:
    page = visit(f"{sample_app}/cluster", width=width)
    idle(page)
    bar = page.locator(".st-key-bar")
    chips = bar.locator(".st-key-chips button")
    if width <= 480:
        expect(chips.first).to_be_hidden()
        page.get_by_text("Scenario", exact=True).click()
    for chip in chips.all():
        expect(chip).to_be_visible()
    chips.last.click()
    expect(page.get_by_label("Repeats", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    for place in ("status", "run", "share"):
        box = bar.locator(f".st-key-{place} button").bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width, place
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_lost_connection_is_a_line_and_all_stays_readable(
    sample_store: Path, visit: Visit
) -> None:
    with serving(sample_store) as own:
        page = visit(own)
        idle(page)
        line = page.get_by_text("The connection to the server is lost.")
        expect(line).to_be_hidden()
    expect(line).to_be_visible()
    expect(page.locator("h1").first).to_be_visible()
    expect(page.get_by_test_id("stDialog")).to_have_count(0)

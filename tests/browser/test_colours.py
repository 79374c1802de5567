"""A policy has one colour wherever it is shown, and keeps it while others come, go, or become the
baseline.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import fill
from tests.browser.test_compare import drawn, study_of_five
from tests.browser.waiting import idle
from trainyard.results import outcomes
from trainyard.store import Store
from trainyard.study.study import Study
from trainyard.views.charts.theme import BASELINE_COLOUR, policy_colours
from trainyard.views.report.page import offline_html

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[..., Page]
_READ = """(titles) => {
  const probe = document.createElement('p'), found = new Set();
  const note = (place, name, colour) => {
    probe.style.color = colour;
    if (titles.includes(name)) found.add(JSON.stringify([place, name, probe.style.color]));
  };
  const of = (node, side) => getComputedStyle(node, side);
  for (const row of document.querySelectorAll('.ty-ledger tbody tr'))
    note('ledger', row.title, of(row.querySelector('i')).borderTopColor);
  for (const chart of document.querySelectorAll('.js-plotly-plot'))
    for (const line of chart.data)
      if (line.line?.color && line.line.width !== 0)
        note('chart', line.legendgroup ?? line.name, line.line.color);
  for (const row of document.querySelectorAll('.ty-policies .row.on'))
    note('tick', row.querySelector('b').textContent, of(row.querySelector('.tick'), '::before').backgroundColor);
  for (const name of document.querySelectorAll('.ty-life-name'))
    note('drawer', name.textContent, of(name.nextElementSibling).color);
  for (const swatch of document.querySelectorAll('table.ty .swatch'))
    note('table', swatch.parentElement.innerText.trim().split(' · ')[0], of(swatch).backgroundColor);
  return [...found].map(JSON.parse);
}"""  # noqa: E501


@pytest.fixture(scope="module")
def study(sample_store: Path) -> Study:
    made = study_of_five()
    fill(sample_store, made)
    return made


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


def colours_of(study: Study, *, dark: bool = False) -> dict[str, str]:
    found = policy_colours(study.titles, study.titles[study.baseline], study.slots, dark=dark)
    return {title: rgb(colour) for title, colour in found.items()}


def same(page: Page, expected: dict[str, str], *places: str) -> None:
    """Every colour of a policy on the page is its own, and it is seen in all of the places."""
    found = page.evaluate(_READ, list(expected))
    assert {place for place, _, _ in found} >= set(places), found
    assert not [one for one in found if one[2] != expected[one[1]]]
    for place in places:
        assert len({name for at, name, _ in found if at == place}) >= 2, place


def search(page: Page) -> None:
    """Search on Plan for what to buy."""
    page.get_by_role("link", name="Plan", exact=True).click()
    budget = page.get_by_label("Budget", exact=True)
    budget.fill("$3,000 a month")
    budget.press("Enter")
    idle(page)
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("table.ty .swatch").first).to_be_visible()
    expect(page.get_by_test_id("stMain").locator(".js-plotly-plot")).to_be_visible()
    expect(page.get_by_test_id("stProgress")).to_have_count(0)
    idle(page)


def test_one_colour_on_all_pages(
    sample_app: str, study: Study, sample_store: Path, visit: Visit, tmp_path: Path
) -> None:
    own = colours_of(study)
    page = visit(f"{sample_app}/compare?s={study.pack()}&r=1")
    drawn(page)
    same(page, own, "ledger", "chart")
    page.get_by_role("link", name="Policies", exact=True).click()
    expect(page.locator(".ty-policies .row.on")).to_have_count(5)
    same(page, own, "tick")
    page.locator("#policy-easy .tick").click()
    expect(page.locator("h1").first).to_have_text(re.compile("^4 of "))
    same(page, {title: own[title] for title in own if title != "EASY backfilling"}, "tick")
    left = [spec for spec in study.allocators if spec.name != "easy"]
    less = study.choosing(tuple(left), [spec.name for spec in left].index("srtf"))
    others = {title: own[title] for title in ("Recorded schedule", "Gavel")}
    page.locator(".st-key-policies_head").get_by_role("combobox").last.click()
    page.get_by_role("option", name="Baseline: SRTF").click()
    expect(page.locator("#policy-srtf")).to_have_css("--own", BASELINE_COLOUR)
    idle(page)
    page.reload()
    expect(page.locator(".ty-policies .row.on")).to_have_count(4)
    now = colours_of(less)
    assert others.items() <= now.items()
    same(page, now, "tick")
    # The same in the dark, with the drawer open.
    kept = parse_qs(urlsplit(page.url).query)["s"][0]
    night = visit(f"{sample_app}/compare?s={kept}&r=1&job=765", color_scheme="dark")
    expect(night.locator(".ty-life-name")).to_have_count(2)
    # The page is drawn after the reasons in the drawer.
    expect(night.locator(".ty-ledger")).to_be_visible()
    drawn(night)
    dark = colours_of(less, dark=True)
    idle(night)
    same(night, dark, "ledger", "chart", "drawer")
    night.keyboard.press("Escape")
    search(night)
    same(night, dark, "chart", "table")
    night.goto(f"{sample_app}/learn?lesson=0&said=0")
    expect(night.locator(".ty-ledger")).to_be_visible()
    idle(night)
    same(night, colours_of(study, dark=True), "ledger")
    file = tmp_path / "report.html"
    made = datetime(2026, 1, 2, tzinfo=UTC)
    results = outcomes.gather(less, Store(sample_store))
    file.write_text(offline_html(results, Store(sample_store), created=made), "utf-8")
    night.emulate_media(color_scheme="light")
    night.goto(file.as_uri())
    expect(night.locator("body")).to_have_attribute("data-drawn", re.compile("[1-9]"))
    same(night, now, "chart")

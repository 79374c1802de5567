"""The names beside lines: all of them, apart from each other, and hidden with their lines."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from sim.params import Spec
from tests.browser.conftest import Scheme, fill
from tests.browser.test_compare import CURVE, LEDGER, TIME, Visit, opened
from tests.browser.waiting import idle
from trainyard.study.study import Study
from trainyard.traces import new_study

pytestmark = [pytest.mark.browser, pytest.mark.slow]
ADDED = (
    *map(Spec, ("sjf", "las", "conservative", "gavel")),
    *(Spec.of(name, placement="consolidate") for name in ("fifo", "sjf", "easy")),
    Spec.of("srtf", size="gpu_time"),
)
"""Fast ones, some with long names."""
WINDOW = "&t0=370000&t1=560000"
_READ = """name => {
  const chart = document.querySelector(name), all = chart.getBoundingClientRect();
  const lines = chart.data.filter(line => line.legendgroup).map(line => line.legendgroup);
  const names = [...chart.querySelectorAll('.annotation')].flatMap(node => {
    const { name } = chart.layout.annotations[node.dataset.index];
    const box = node.querySelector('.annotation-text').getBoundingClientRect();
    const sides = [box.left, box.top, box.right, box.bottom, all.right, all.bottom];
    return name && node.style.display !== 'none' ? [[name, ...sides]] : [];
  });
  const { xaxis } = chart._fullLayout;
  return [[...new Set(lines)], names, xaxis._length / all.width];
}"""
_HIDE_GAVEL = """name => {
  document.querySelector('[role=checkbox][aria-label="Lines of Gavel"]').click();
  const chart = document.querySelector(name);
  const line = chart._fullData.find(line => line.legendgroup === 'Gavel');
  return chart.querySelector('.trace' + line.uid).style.display;
}"""


@pytest.fixture(scope="module")
def studies(sample_store: Path) -> dict[int, Study]:
    sample = new_study.sample_study()
    twelve = sample.choosing((*sample.allocators, *ADDED), sample.baseline)
    fill(sample_store, twelve)
    return {count: twelve.only(range(count)) for count in (1, 4, 6, 12)}


def named(page: Page, chart: str) -> set[str]:
    """Return the policies named in a chart: those drawn; the names overlap and leave nothing."""
    lines, names, _ = page.evaluate(_READ, chart)
    assert all(right <= end and bottom <= floor for *_, right, bottom, end, floor in names)
    for one, other in combinations(names, 2):
        assert one[4] <= other[2] or other[4] <= one[2], (one, other)
    assert {name[0] for name in names} == set(lines)
    return set(lines)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("count", [1, 4, 6, 12])
def test_every_line_has_a_name_of_its_own(
    sample_app: str, studies: dict[int, Study], visit: Visit, count: int, scheme: Scheme
) -> None:
    for more in ("", WINDOW):
        page = opened(visit, sample_app, studies[count], params=more, color_scheme=scheme)
        assert named(page, TIME) == named(page, CURVE) == set(studies[count].titles)


@pytest.mark.parametrize(("width", "height"), [(390, 900), (1000, 900), (1280, 720), (1920, 1080)])
def test_names_fit_on_a_phone_and_in_large_type(
    sample_app: str, studies: dict[int, Study], visit: Visit, width: int, height: int
) -> None:
    more = "&present=1" if width > 1200 else ""
    page = opened(visit, sample_app, studies[12], params=more, width=width)
    page.set_viewport_size({"width": width, "height": height})
    idle(page)
    assert named(page, TIME) == named(page, CURVE)
    assert min(page.evaluate(_READ, chart)[2] for chart in (TIME, CURVE)) >= 0.5


def hidden(page: Page) -> set[str]:
    return {
        one.get_attribute("title") or "" for one in page.locator(f"{LEDGER} tr:has(i.hollow)").all()
    }


def test_a_policy_is_hidden_by_name_box_or_key_and_shown_again(
    sample_app: str, studies: dict[int, Study], visit: Visit
) -> None:
    page = opened(visit, sample_app, studies[12], params="&hide=gone,LAS (Tiresias),FIFO")
    assert hidden(page) == {"LAS (Tiresias)"}
    name = page.locator(f"{TIME} .annotation").filter(has_text=re.compile("^SJF$"))
    name.locator(".annotation-text").click(modifiers=["Alt"])
    expect(page).to_have_url(re.compile("hide=SJF"))
    page.wait_for_function(
        f"!document.querySelector('{TIME}').data.some(line => line.legendgroup === 'SJF')"
    )
    idle(page)
    box = page.get_by_role("checkbox", name="Lines of Gavel")
    # Before the server answers; found in the same step, as an answer replaces the table.
    assert page.evaluate(_HIDE_GAVEL, TIME) == "none"
    expect(page).to_have_url(re.compile("Gavel"))
    page.locator(LEDGER).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("h")  # of the baseline, which stays
    page.keyboard.press("ArrowDown")
    page.keyboard.press("h")
    expect(page).to_have_url(re.compile("EASY"))
    four = {"LAS (Tiresias)", "SJF", "Gavel", "EASY backfilling"}
    page.wait_for_function(f"document.querySelectorAll('{TIME} .annotation').length === 13")
    assert hidden(page) == four
    assert named(page, TIME) == named(page, CURVE) == set(studies[12].titles) - four
    expect(box).to_have_attribute("aria-checked", "false")
    page.locator(f"{LEDGER} tbody tr[title='Gavel'] b").click()
    page.locator("h1.ty-answer span:text-is('Gavel')").wait_for()
    idle(page)
    assert hidden(page) == four - {"Gavel"}
    page.get_by_role("button", name="Show all").click()
    expect(page).not_to_have_url(re.compile("hide="))
    idle(page)
    assert hidden(page) == set()
    assert named(page, CURVE) == set(studies[12].titles)
    expect(page.get_by_role("button", name="Show all")).to_be_hidden()

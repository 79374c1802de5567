"""The slider of Compare: results follow it, and it becomes a scenario when it rests."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Scheme, fill
from tests.browser.measuring import low_contrast, misplaced
from tests.browser.test_compare import LEDGER, drawn, opened, study_of_five
from tests.browser.waiting import idle

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[..., Page]
SLIDER = ".ty-what-if input"
TEXT = ".ty-what-if output"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of its own: a server learns from each run what it lets follow the slider."""
    place = tmp_path_factory.mktemp("app") / "store"
    fill(place, study_of_five())
    return place


def field(page: Page, title: str, at: int = 3) -> Locator:
    """A cell of the ledger: 1 and 2 are the longest queue, 3 is the mean time."""
    return page.locator(f"{LEDGER} tbody tr[title='{title}']").locator("th, td").nth(at)


def cell(page: Page, title: str, at: int = 3) -> str:
    return field(page, title, at).inner_text()


def hold(page: Page, *values: int, most: int = 8) -> None:
    """Press the pointer on the slider and lead it over some values."""
    box = page.locator(SLIDER).bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    first = True
    for value in values:
        page.mouse.move(box["x"] + 8 + (box["width"] - 16) * value / most, y, steps=3)
        if first:
            page.mouse.down()
        first = False


def changed(page: Page, title: str, before: str) -> None:
    expect(field(page, title)).not_to_have_text(before)


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (800, "dark")])
def test_results_follow_and_the_others_stay_faint(
    app: str, visit: Visit, width: int, scheme: Scheme
) -> None:
    page = opened(visit, app, width=width, color_scheme=scheme)
    before = {title: cell(page, title) for title in ("FIFO", "EASY backfilling", "Gavel")}
    address = page.url
    hold(page, 4, 5, 6)
    expect(page.locator(TEXT)).to_have_text("6")
    changed(page, "FIFO", before["FIFO"])
    expect(page.locator(".ty-facts").first).to_contain_text("80 GPUs")
    changed(page, "EASY backfilling", before["EASY backfilling"])
    # What cannot follow keeps its last result, and is told from the others.
    assert cell(page, "Gavel").startswith(before["Gavel"].split()[0])
    expect(page.locator(f"{LEDGER} tr.earlier")).to_have_count(2)
    assert page.url == address
    idle(page)
    assert misplaced(page) == []
    if width == 1440:
        assert [one for one in low_contrast(page) if "line" not in one] == []
    six = cell(page, "FIFO")
    hold(page, 2, 7, 3, 6)
    expect(page.locator(TEXT)).to_have_text("6")
    idle(page)
    page.mouse.up()
    expect(page.locator(".st-key-chip_cluster")).to_contain_text("80 GPUs")
    # The bar is drawn first, the ledger after it.
    expect(field(page, "FIFO")).to_have_text(six)
    expect(page.locator(f"{LEDGER} tr.earlier")).to_have_count(0)
    drawn(page)
    assert cell(page, "FIFO") == six
    page.reload()
    drawn(page)
    assert cell(page, "FIFO") == six
    expect(page.locator(TEXT)).to_have_text("6")


def test_keys_a_double_click_undo_and_back(app: str, visit: Visit) -> None:
    page = opened(visit, app)
    four = cell(page, "FIFO")
    slider = page.locator(SLIDER)
    slider.focus()
    page.keyboard.press("ArrowRight")
    changed(page, "FIFO", four)
    expect(page.locator(".st-key-chip_cluster")).to_contain_text("72 GPUs")
    idle(page)
    assert slider.evaluate("one => one === document.activeElement")
    expect(page.locator(f"{LEDGER} tr.earlier")).to_have_count(0)
    five = cell(page, "FIFO")
    # The other settings are there for keys and for the pointer.
    page.keyboard.press("ArrowDown")
    expect(slider).to_have_attribute("aria-label", "V100 nodes")
    page.keyboard.press("ArrowDown")
    expect(slider).to_have_attribute("aria-label", "Load")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.locator(TEXT)).to_have_text("5")
    box = slider.bounding_box()
    assert box is not None
    page.mouse.dblclick(box["x"] + 8 + (box["width"] - 16) * 5 / 8, box["y"] + box["height"] / 2)
    idle(page)
    assert cell(page, "FIFO") == five
    page.locator(".st-key-undo button:visible").click()
    expect(page.locator(".st-key-chip_cluster")).to_contain_text("64 GPUs")
    expect(page.locator(TEXT)).to_have_text("4")
    page.get_by_role("link", name="Explore").click()
    page.wait_for_url("**/explore**")
    page.go_back()
    drawn(page)
    expect(page.locator(TEXT)).to_have_text("4")


def test_twenty_moves_keep_the_policy_of_the_headline_and_undo_leads_back(
    app: str, visit: Visit
) -> None:
    page = opened(visit, app)
    name = page.locator("h1.ty-answer span")
    high, four = name.inner_text(), cell(page, "FIFO")
    scenario = parse_qs(page.url.partition("?")[2])["s"][0]
    draw = random.Random(3)
    for _ in range(20):
        hold(page, *draw.choices(range(3, 8), k=2))
        page.mouse.up()
        # A headline without the name is of a policy that still runs.
        assert name.all_inner_texts() in ([high], [])
    hold(page, 6)
    page.mouse.up()
    bar = page.locator(".st-key-change")
    expect(bar).to_contain_text("4 → 6 A100 nodes")
    undo = bar.get_by_role("button", name="Undo")
    expect(undo).to_be_visible()
    idle(page)
    expect(name).to_have_text(high)
    expect(page.locator(".ty-tiles")).to_contain_text("was ")
    assert misplaced(page) == []
    undo.click()
    expect(page.locator(".st-key-chip_cluster")).to_contain_text("64 GPUs")
    expect(field(page, "FIFO")).to_have_text(four)
    expect(bar).to_have_count(0)
    expect(page).to_have_url(re.compile(rf"[?&]s={re.escape(scenario)}(&|$)"))
    idle(page)
    hold(page, 6)
    page.mouse.up()
    expect(undo).to_be_visible()
    idle(page)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Escape")
    expect(bar).to_have_count(0)
    expect(page.locator(".st-key-chip_cluster")).to_contain_text("80 GPUs")


def test_leading_it_to_and_fro_never_loses_the_page(app: str, visit: Visit) -> None:
    draw, page = (
        random.Random(0),
        opened(visit, app),
    )  # what is random is when the answers come
    for _ in range(20):
        hold(page, *draw.choices(range(9), k=draw.randrange(1, 6)))
        # Most rounds interrupt what is being drawn.
        if draw.random() < 0.3:
            idle(page)
        if draw.random() < 0.2:
            page.mouse.up()
    page.mouse.up()
    drawn(page)
    expect(page.locator(SLIDER)).to_be_visible()

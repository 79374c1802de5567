"""What every page of the forms has in common: nothing is wider than a small window, one button is
blue at most, instants are written in one way.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.measuring import FITS, misplaced
from tests.browser.waiting import idle, ready
from trainyard.traces import new_study

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[..., Page]
PAGES = ("trace", "cluster", "explore", "plan", "learn")
WIDTHS = (1440, 800, 390)
OLD = re.compile(r"since the first submission|\bday \d+ \d\d:\d\d|\b\d+\.\d\d (h|hours|days)\b")


def parameters() -> str:
    """Return the parameters of an address with the stored results of the sample."""
    return f"s={new_study.sample_study().pack()}&r=1"


def test_every_page_fits_its_window_and_has_one_blue_button(sample_app: str, visit: Visit) -> None:
    page = visit(f"{sample_app}/{PAGES[0]}?{parameters()}")
    for name in PAGES:
        if name != PAGES[0]:
            page.set_viewport_size({"width": WIDTHS[0], "height": 1000})
            page.goto(f"{sample_app}/{name}?{parameters()}")
            ready(page)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 1000})
            idle(page)
            page.wait_for_function(FITS)
            assert misplaced(page) == [], (name, width)
            assert page.get_by_test_id("stSidebar").count() == 0, (name, width)
            primary = page.locator("[data-testid=stBaseButton-primary]:visible")
            assert primary.count() <= 1, (name, width)
            assert not OLD.findall(page.inner_text("body")), (name, width)


def test_an_unknown_gpu_type_stops_with_the_nearest(sample_app: str, visit: Visit) -> None:
    page = visit(f"{sample_app}/cluster?{parameters()}")
    before = page.locator("h1").inner_text()
    page.get_by_role("button", name="Type or import").click()
    line = page.get_by_role("textbox", name="Nodes x GPUs : type")
    line.fill("2x8:h100x")
    line.press("Enter")
    idle(page)
    page.get_by_role("button", name="Apply", exact=True).click()
    expect(
        page.get_by_text(
            "No speed known for ‘h100x’. Nearest: H100. Enter speed and price, or use H100."
        )
    ).to_be_visible()
    expect(page.locator("h1").first).to_have_text(before)
    page.get_by_role("button", name="Use H100").click()
    expect(page.locator("h1").first).to_have_text("2 nodes of 8 H100: 16 GPUs on 2 nodes")

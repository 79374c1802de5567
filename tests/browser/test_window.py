"""The window of time in a real browser: chosen with a drag, kept in the address, taken away with its chip."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[..., Page]


def drag(page: Page, strip: Locator, begin: float, end: float) -> None:
    strip.scroll_into_view_if_needed()
    strip.hover()
    box = strip.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * begin, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, y, steps=6)
    page.mouse.up()


def test_a_drag_on_the_strip_is_kept_in_the_address_until_its_chip_goes(app: str, visit: Visit) -> None:
    page = visit(app)
    page.get_by_role("button", name="Run the sample").click()
    expect(page.get_by_text("Up to date")).to_be_visible()
    main = page.get_by_test_id("stMain")
    strip = main.locator(".js-plotly-plot").first
    # The strip has its place once everything below is drawn too.
    expect(main.locator(".js-plotly-plot .nsewdrag")).not_to_have_count(0)
    expect(main.get_by_text("Where does the time of a job go?")).to_be_visible()
    drag(page, strip, 0.5, 0.75)
    chip = main.get_by_role("button", name="✕")
    expect(chip).to_have_text(re.compile(r"day \d+ \d\d:\d\d to day \d+ \d\d:\d\d ✕"))
    expect(page).to_have_url(re.compile(r"&t0=\d+&t1=\d+"))
    told = chip.inner_text()
    page.reload()
    expect(chip).to_have_text(told)
    chip.click()
    expect(chip).to_have_count(0)
    expect(page).not_to_have_url(re.compile("t0="))

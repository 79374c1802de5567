"""Presentation mode, and the colour of a policy on all pages."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser.conftest import Scheme, fill
from tests.browser.test_compare import LEDGER, Visit, drawn
from tests.browser.waiting import idle
from trainyard.study.study import Study
from trainyard.traces import new_study

pytestmark = [pytest.mark.browser, pytest.mark.slow]
ANSWER = "h1.ty-answer"
SIZES = ((1280, 720), (1440, 900), (1920, 1080))


def opened(visit: Visit, app: str, study: Study, more: str = "") -> Page:
    page = visit(f"{app}/compare?s={study.pack()}&r=1{more}")
    page.set_viewport_size({"width": 1920, "height": 1080})
    drawn(page)
    return page


def test_a_presentation_fills_the_screen_and_is_driven_by_keys(
    sample_app: str, visit: Visit
) -> None:
    page = opened(visit, sample_app, new_study.sample_study(), "&present=1")
    expect(page.locator(".st-key-bar_place")).to_be_hidden()
    expect(page.locator(ANSWER)).to_contain_text("With SRTF")
    assert page.evaluate(f"document.querySelector('{ANSWER}').getBoundingClientRect().height") >= 40
    last = page.locator(f"{LEDGER} tbody tr").last.bounding_box()
    assert last is not None
    assert last["y"] + last["height"] <= 1080
    for chart in page.locator(".st-key-charts .js-plotly-plot").all():
        box, inside = chart.bounding_box(), chart.locator(".main-svg").first.bounding_box()
        assert box is not None
        assert inside is not None
        assert inside["width"] <= box["width"] + 1
        assert box["x"] + box["width"] <= 1920
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        drawn(page)
        page.wait_for_function(
            f"""() => {{ const table = document.querySelector('{LEDGER}');
            return table && table.scrollWidth <= table.clientWidth; }}"""
        )
    page.keyboard.press("ArrowLeft")
    expect(page.locator(ANSWER)).to_contain_text("EASY backfilling")
    page.keyboard.press("ArrowRight")
    expect(page.locator(ANSWER)).to_contain_text("With SRTF")
    page.keyboard.press("Escape")
    expect(page.locator(".st-key-bar_place")).to_be_visible()
    assert "present" not in page.url


@pytest.mark.parametrize("width", [390, 800])
def test_a_small_window_cuts_no_text_of_a_chart(sample_app: str, visit: Visit, width: int) -> None:
    page = visit(
        f"{sample_app}/compare?s={new_study.sample_study().pack()}&r=1&present=1", width=width
    )
    drawn(page)
    page.wait_for_function(
        """() => [...document.querySelectorAll('.st-key-charts .annotation-text')].every(text => {
        const parts = text.querySelector('tspan') ? [...text.querySelectorAll('tspan')] : [text];
        const end = text.closest('.js-plotly-plot').getBoundingClientRect().right + 1;
        return parts.every(part => getComputedStyle(part).visibility === 'hidden'
          || part.getBoundingClientRect().right <= end); })"""
    )


def test_up_and_down_step_through_saved_comparisons(
    sample_app: str, visit: Visit, sample_store: Path
) -> None:
    sample = new_study.sample_study()
    # What is opened is put on the shelf of this browser, but for the sample.
    two, three = (sample.choosing(sample.allocators[:count]) for count in (2, 3))
    fill(sample_store, two, three)
    page = opened(visit, sample_app, two)
    page.goto(f"{sample_app}/compare?s={three.pack()}&r=1&present=1")
    drawn(page)
    rows = page.locator(f"{LEDGER} tbody tr")
    expect(rows).to_have_count(3)
    page.keyboard.press("ArrowDown")
    expect(rows).to_have_count(2)
    idle(page)
    page.keyboard.press("ArrowUp")
    expect(rows).to_have_count(3)
    expect(page).to_have_url(re.compile(r"[?&]present=1"))


def test_the_entry_of_the_menu_begins_a_presentation(sample_app: str, visit: Visit) -> None:
    page = opened(visit, sample_app, new_study.sample_study())
    page.locator(".st-key-share button").first.click()
    page.get_by_role("button", name="Presentation mode").click()
    expect(page.get_by_role("button", name="Leave (Esc)")).to_be_visible()
    # Nothing lies over the presentation, not even the first stop of the keyboard.
    expect(page.locator("[data-testid=stPopoverBody]")).to_have_count(0)
    expect(page.locator("[data-testid=stSkipToContent]")).to_be_hidden()
    expect(page).to_have_url(re.compile(r"[?&]present=1"))
    page.get_by_role("button", name="Leave (Esc)").click()
    expect(page.locator(".st-key-bar_place")).to_be_visible()


def colours(page: Page) -> dict[str, str]:
    return dict(
        page.locator(f"{LEDGER} tbody tr").evaluate_all(
            "rows => rows.map(row =>"
            " [row.title, getComputedStyle(row.querySelector('i')).borderTopColor])"
        )
    )


def test_a_policy_keeps_its_colour_without_another_and_beside_another_baseline(
    sample_app: str, visit: Visit
) -> None:
    whole = new_study.sample_study()
    page = opened(visit, sample_app, whole)
    first = colours(page)
    grey = first["FIFO"]
    page.reload()
    drawn(page)
    assert colours(page) == first
    fewer = whole.choosing([spec for spec in whole.allocators if spec.name != "easy"])
    page.goto(f"{sample_app}/compare?s={fewer.pack()}&r=1")
    drawn(page)
    assert colours(page).items() <= first.items()
    srtf = next(at for at, spec in enumerate(whole.allocators) if spec.name == "srtf")
    page.goto(f"{sample_app}/compare?s={replace(whole, baseline=srtf).pack()}&r=1")
    drawn(page)
    based = colours(page)
    assert based["SRTF"] == grey
    kept = set(first) - {"SRTF", "FIFO"}
    assert {name: based[name] for name in kept} == {name: first[name] for name in kept}
    idle(page)


WRITTEN = """() => {
  window.written = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const width = this.measureText(text).width, size = Number(this.font.match(/(\\d+)px/)[1]);
    const left = this.textAlign === 'right' ? x - width : x;
    if (this.canvas.width === 1920) window.written.push([text, left, y, width, size]);
    fillText.call(this, text, x, y);
  };
}"""
"""Record what a slide writes: text, left, baseline, width and size in pixels."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_slide_is_three_clicks_away_and_stays_inside_its_margins(
    sample_app: str, visit: Visit, tmp_path: Path, scheme: Scheme
) -> None:
    sample = new_study.sample_study()
    # A name without spaces, longer than a line.
    study = replace(sample, names=("", "", "W" * 60, ""))
    page = visit(f"{sample_app}/compare?s={study.pack()}&r=1", color_scheme=scheme)
    drawn(page)
    page.evaluate(WRITTEN)
    page.locator(".st-key-share button").first.click()
    with page.expect_download() as png:
        page.get_by_role("button", name="Slide (PNG)").click()
    with Image.open(png.value.path()) as image:
        assert (image.format, image.size) == ("PNG", (1920, 1080))
        lightest, darkest = image.convert("L").getextrema()[::-1]
        assert lightest - darkest > 200
        for chart in ((72, 432, 1096, 982), (1120, 432, 1848, 982)):
            part = image.convert("L").crop(chart).getextrema()
            assert part[1] - part[0] > 100, chart
    written = page.evaluate("window.written")
    texts = " ".join(text for text, *_ in written)
    assert "WWW" in texts
    assert "Assumed: A stopped or resized job takes 60 s" in texts
    assert "Trainyard" in texts
    assert min(left for _, left, *_ in written) >= 72
    assert max(left + width for _, left, _, width, _ in written) <= 1920 - 72 + 1
    assert max(y for _, _, y, *_ in written) <= 1080 - 22
    assert min(size for *_, size in written) >= 28
    with page.expect_download() as pdf:
        page.get_by_role("button", name="Slide (PDF)").click()
    content = Path(pdf.value.path()).read_bytes()
    assert content.startswith(b"%PDF-1.4")
    at = int(content.rsplit(b"startxref\n", 1)[1].split(b"\n")[0])
    assert content[at:].startswith(b"xref")
    # Each object begins where the table says.
    for number, line in enumerate(content[at:].split(b"\n")[3:8], start=1):
        assert content[int(line[:10]) :].startswith(b"%d 0 obj" % number)

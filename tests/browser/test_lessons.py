"""A lesson in a real browser: the link of a teacher on a fresh server, predict, run, change; one
run for two students; reload and Back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.server import serving

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[..., Page]
LINK = "/learn?tab=lessons&lesson=2&class=7b&seed=7&jobs=100&of=40"


def answer(page: Page, text: str) -> None:
    main = page.get_by_test_id("stMain")
    expect(main.get_by_role("button", name="Run the lesson")).to_be_disabled()
    main.get_by_text(text).click()
    main.get_by_role("button", name="Run the lesson").click()
    expect(main.get_by_text("your answer")).to_be_visible()


def _runs_of_the_lesson(store: Path) -> int:
    # The server runs the first sample meanwhile, for whoever comes to Start.
    return sum(
        "made:recurring" in manifest.read_text()
        for manifest in (store / "runs").glob("*/*/manifest.json")
    )


def test_a_class_link_on_a_fresh_server_and_one_run_for_two_students(
    store: Path, visit: Visit
) -> None:
    with serving(store) as fresh:
        first = visit(fresh + LINK)
        expect(first.get_by_role("link", name="Policies", exact=True)).to_be_visible()
        expect(
            first.get_by_text("seed 7, at most 100 jobs: set by your teacher's link.")
        ).to_be_visible()
        answer(first, "None, or next to none")
        expect(first.get_by_text("1 of 40 have run this.")).to_be_visible()
        expect(first.locator(".js-plotly-plot").first).to_be_visible()
        assert _runs_of_the_lesson(store) == 2
        second = visit(fresh + LINK, width=800)
        answer(second, "One in five, or more")
        # The first student sees the second arrive without doing anything.
        expect(first.get_by_text("2 of 40 have run this.")).to_be_visible(timeout=15_000)
        assert _runs_of_the_lesson(store) == 2
        assert second.evaluate("document.documentElement.scrollWidth <= innerWidth")
        second.reload()
        expect(second.get_by_text("your answer")).to_be_visible()
        expect(second.get_by_text("2 of 40 have run this.")).to_be_visible()


def test_change_one_thing_another_page_and_back(sample_app: str, visit: Visit) -> None:
    page = visit(f"{sample_app}/learn?lesson=2&jobs=100")
    answer(page, "Some, but fewer")
    page.get_by_text("Within a factor of about 10").click()
    page.get_by_role("button", name="Run the change").click()
    expect(page.locator("strong", has_text="Within a factor of about 10:")).to_be_visible()
    expect(page).to_have_url(re.compile("said=1.*option=2|option=2.*said=1"))
    page.get_by_role("link", name="Trace", exact=True).click()
    expect(page.locator("h1").first).to_contain_text("1,200 jobs")
    page.go_back()
    expect(page.locator("strong", has_text="Within a factor of about 10:")).to_be_visible()
    page.get_by_role("tab", name="Glossary").click()
    expect(page.get_by_text("The GPUs of one job, which it needs all at once.")).to_be_visible()
    expect(page).to_have_url(re.compile("tab=glossary"))
    page.reload()
    expect(page.get_by_text("The GPUs of one job, which it needs all at once.")).to_be_visible()


def test_lessons_run_in_this_browser_are_ticked_and_a_lesson_is_presented_by_keys(
    sample_app: str, visit: Visit
) -> None:
    page = visit(f"{sample_app}/learn?lesson=2&jobs=100")
    done = page.locator(".ty-lessons-done")
    expect(done).to_have_text("0 of 12 lessons done")
    answer(page, "Some, but fewer")
    expect(done).to_have_text("1 of 12 lessons done")
    ticked = page.locator(".st-key-lesson_list label.ty-done")
    expect(ticked).to_have_text(["2 · Shortest first: who pays?"])
    page.goto(f"{sample_app}/learn?lesson=3")
    expect(done).to_have_text("1 of 12 lessons done")
    page.get_by_role("button", name="Present").click()
    title = page.locator("h1").first
    expect(title).to_have_text("Gangs and fragmentation")
    expect(page.locator(".st-key-lesson_list")).to_be_hidden()
    expect(page.locator(".st-key-navigation")).to_be_hidden()
    expect(page.get_by_role("button", name="Leave (Esc)")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(title).to_have_text("Mixed GPUs")
    page.keyboard.press("Escape")
    expect(page.locator(".st-key-navigation")).to_be_visible()

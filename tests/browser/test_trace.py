"""Trace in a browser: a look-alike and a second trace by keys alone, at every width, in light and
dark, and with names that try to be markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Scheme
from tests.browser.measuring import FITS, low_contrast, misplaced
from tests.browser.waiting import idle

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[..., Page]
HOSTILE = "<img src=x onerror=window.hacked=1>" + "n" * 200


def twice(page: Page) -> None:
    """Make twice the load by keys alone."""
    page.get_by_role("button", name="Synthetic copy").focus()
    page.keyboard.press("Enter")
    load = page.get_by_role("spinbutton", name="Load multiplier").last
    expect(load).to_be_visible()
    load.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("2")
    page.get_by_role("button", name="Generate", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1").first).to_have_text(
        re.compile(r"^Made: like a trace, load 2, seed 0: 2,400 jobs")
    )
    expect(page.get_by_text("At the load of the trace: ")).to_be_visible()
    idle(page)


def _stops(page: Page) -> set[str]:
    """Return the names of what the Tab key reaches first."""
    found = set()
    for _ in range(45):
        page.keyboard.press("Tab")
        found.add(
            page.evaluate("document.activeElement.getAttribute('aria-label')?.slice(0, 40) ?? ''")
        )
    return found


@pytest.mark.parametrize(
    ("width", "scheme"), [(1440, "light"), (1440, "dark"), (800, "light"), (390, "dark")]
)
def test_two_traces_beside_each_other_fit(
    sample_app: str, visit: Visit, width: int, scheme: Scheme
) -> None:
    page = visit(f"{sample_app}/trace", width=width, color_scheme=scheme)
    idle(page)
    twice(page)
    # The choices have made way for what they made.
    expect(page.get_by_role("button", name="Generate", exact=True)).to_be_hidden()
    expect(page.locator(".js-plotly-plot")).to_have_count(8)
    page.wait_for_function(FITS)
    assert low_contrast(page) == []
    assert misplaced(page) == []
    assert not _stops(page) & {"Zoom", "Pan", "Reset axes"}
    # Reloading keeps the jobs, because the address holds their figures.
    page.goto(page.url)
    expect(page.locator("h1").first).to_have_text(re.compile("^Made: like a trace, load 2"))


def test_names_of_a_dropped_file_are_text(sample_app: str, visit: Visit) -> None:
    rows = [f"{at},{60 * at},{1 + at % 2},{100 + at},{HOSTILE}" for at in range(60)]
    text = "\n".join(["job_id,submit_time_s,num_gpus,duration_s,user", *rows])
    file: Any = {"name": "<b>bold $x$.csv", "mimeType": "text/csv", "buffer": text.encode()}
    page = visit(f"{sample_app}/trace")
    idle(page)
    page.locator("input[type=file]").first.set_input_files(file)
    expect(page.locator("h1").first).to_contain_text("<b>bold $x$.csv: 60 jobs")
    box = page.get_by_role("combobox", name=re.compile("Compare with another trace"))
    box.click()
    page.get_by_role("option", name="Twelve jobs by hand").click()
    expect(page.get_by_text("Largest difference: ")).to_be_visible()
    idle(page)
    assert page.evaluate("window.hacked") is None
    assert low_contrast(page) == []
    page.wait_for_function(FITS)
    assert misplaced(page) == []


def test_jobs_and_machines_in_one_drop(sample_app: str, visit: Visit) -> None:
    jobs = "job_id,submit_time_s,num_gpus,duration_s\na,0,1,600\nb,60,2,1200\n"
    files: Any = [
        {"name": name, "mimeType": "text/csv", "buffer": text.encode()}
        for name, text in (
            ("jobs.csv", jobs),
            ("other.csv", jobs.replace("1200", "1300")),
            ("nodes.txt", "gpu-1|all*|gpu:a100:4|64|515000|idle|\n"),
            ("paper.csv", "%PDF-1.7"),
        )
    ]
    page = visit(f"{sample_app}/trace")
    idle(page)
    field = page.locator(".st-key-trace_file input[type=file]").first
    field.set_input_files(files)
    page.locator(".st-key-which_trace").get_by_text("other.csv").click()
    page.get_by_role("button", name="Use this trace").click()
    expect(
        page.get_by_text("The jobs are from other.csv, the cluster from nodes.txt")
    ).to_be_visible()
    expect(page.get_by_text("paper.csv: ")).to_be_visible()
    expect(page.locator("h1").first).to_contain_text("other.csv: 2 jobs")
    # What is added later is a drop of its own.
    field.set_input_files(files[:1])
    expect(page.locator("h1").first).to_contain_text("jobs.csv: 2 jobs")


LIST = "id,submitted,gpus,duration\n" + "\n".join(
    f"j{at},2026-03-{1 + at % 9:02d} 0{at % 9}:00:00,{1 + at % 4},{1200 + at}" for at in range(30)
)


def test_a_good_file_after_a_bad_one_and_its_answers_kept(sample_app: str, visit: Visit) -> None:
    page = visit(f"{sample_app}/trace", width=800, color_scheme="dark")
    idle(page)
    field = page.locator(".st-key-trace_file input[type=file]").first

    def drop(name: str, text: str) -> None:
        field.set_input_files({"name": name, "mimeType": "text/csv", "buffer": text.encode()})

    before = page.locator("h1").inner_text()
    drop("paper.csv", "%PDF-1.7")
    expect(page.get_by_text("this is a PDF document")).to_be_visible()
    assert page.locator("h1").inner_text() == before
    drop("march.csv", LIST)
    expect(page.get_by_text("This file leaves 2 questions open.")).to_be_visible()
    expect(page.get_by_text("this is a PDF document")).to_be_hidden()
    page.get_by_role("button", name="Read with these answers").click()
    expect(page.get_by_role("button", name="2 answers about this file")).to_be_visible()
    page.get_by_role("button", name="Recipe").click()
    page.get_by_role("button", name="Save for similar files").click()
    expect(page.get_by_text("Read by your recipe “march” of ")).to_be_visible()
    page.mouse.move(0, 0)  # a button under it would be between two colors
    idle(page)
    assert low_contrast(page) == []
    page.wait_for_function(FITS)
    assert misplaced(page) == []
    page.keyboard.press("Escape")
    # The same browser, another session.
    page.goto(f"{sample_app}/trace")
    idle(page)
    drop("april.csv", LIST)
    expect(page.get_by_text("Read by your recipe “march” of ")).to_be_visible()
    expect(page.get_by_text("questions open")).to_be_hidden()

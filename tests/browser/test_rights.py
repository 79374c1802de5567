"""An upload belongs to the browser that made it: whoever opens its link sees the result, and
deletes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.waiting import idle, ready
from trainyard.library.library import NotYoursError, delete_trace
from trainyard.store import Store

pytestmark = [pytest.mark.browser, pytest.mark.slow]
JOBS = "job_id,submit_time_s,num_gpus,duration_s\n" + "".join(
    f"j{at},{at},{at % 4 + 1},600\n" for at in range(30)
)


def give(page: Page, name: str, content: bytes) -> None:
    page.get_by_test_id("stFileUploader").locator("input[type=file]").first.set_input_files(
        {"name": name, "mimeType": "text/csv", "buffer": content}
    )


def test_only_the_uploader_deletes(app: str, visit: Callable[..., Page], store: Path) -> None:
    page = visit(f"{app}/trace")
    give(page, "mine.csv", JOBS.encode())
    bar = page.locator(".st-key-bar")
    expect(bar.get_by_text("mine.csv", exact=True)).to_be_visible()
    delete = page.get_by_role("button", name="Delete jobs and results")
    idle(page)
    page.get_by_role("button", name="Formats and privacy").click()
    expect(delete).to_be_visible()
    page.keyboard.press("Escape")
    bar.get_by_role("button", name="Run", exact=True).click()
    expect(bar.get_by_text("Up to date")).to_be_visible()
    link = page.url

    visitor = visit(link)
    expect(visitor.locator(".st-key-bar").get_by_text("Up to date")).to_be_visible()
    expect(visitor.locator(".st-key-bar").get_by_text("mine.csv", exact=True)).to_be_visible()
    visitor.goto(link.replace("/compare", "/trace"))
    ready(visitor)
    idle(visitor)
    visitor.get_by_role("button", name="Formats and privacy").click()
    expect(visitor.get_by_text("Only the browser that uploaded this trace")).to_be_visible()
    expect(visitor.get_by_role("button", name=re.compile("^Delete jobs"))).to_have_count(0)

    kept = Store(store)
    about = kept.traces()[0]
    results = kept.runs_of(f"store:{about.digest}")
    assert results
    forced: Any = SimpleNamespace(store=kept, watchers=lambda _: set(), stop=lambda *_: None)
    with pytest.raises(NotYoursError, match="only that browser can delete it"):
        delete_trace(about.digest, forced, "visitor", "0" * 32)

    page.goto(link.replace("/compare", "/trace"))
    ready(page)
    idle(page)
    page.get_by_role("button", name="Formats and privacy").click()
    delete.click()
    expect(page.get_by_text(re.compile("^Deleted .* from this server"))).to_be_visible()
    assert kept.trace_info(about.digest) is None
    assert not any(kept.has(key) for key in results)


def test_a_click_too_many_and_wrong_files(app: str, visit: Callable[..., Page]) -> None:
    page = visit(f"{app}/trace")
    field, fault = (
        page.get_by_test_id("stFileUploader"),
        page.get_by_test_id("stMain").get_by_test_id("stAlert"),
    )
    twice = {"name": "twice.csv", "mimeType": "text/csv", "buffer": JOBS.encode()}
    field.locator("input[type=file]").first.set_input_files(twice)
    field.locator("input[type=file]").first.set_input_files(twice)
    expect(page.locator(".st-key-bar").get_by_text("twice.csv", exact=True)).to_be_visible()
    expect(fault).to_have_count(0)
    # Milliseconds are asked back, and the form below the sentence has the answer.
    late = JOBS.replace(",600", ",600,x").replace("duration_s", "duration_s,note")
    rows = [
        late.splitlines()[0],
        *(f"m{at},{1_700_000_000_000 + at * 1000},1,600,x" for at in range(5)),
    ]
    give(page, "ms.csv", "\n".join(rows).encode())
    expect(fault).to_contain_text("look like milliseconds since 1970")
    page.get_by_text("Reading options").click()
    idle(page)  # what is drawn anew closes a list
    page.get_by_label("Unit of numeric times").click()
    page.get_by_role("option", name="milliseconds").click()
    page.get_by_role("button", name="Read again").click()
    expect(page.locator(".st-key-bar").get_by_text("ms.csv", exact=True)).to_be_visible()
    expect(fault).to_have_count(0)
    # Of a file that nobody can read nothing is kept, and there is nothing to choose.
    give(page, "paper.csv", b"%PDF-1.7" + b"\x00" * 2_000_000)
    expect(fault).to_contain_text("a PDF document")
    expect(page.get_by_text("Reading options")).to_have_count(0)

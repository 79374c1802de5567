"""What only a browser can show of Start and of the scenario beside every page."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Dialog, Page, expect

from lab import start

pytestmark = [pytest.mark.browser, pytest.mark.slow]
HOSTILE = '"></div><img src=x onerror=alert(1)><script>alert(2)</script>'
Visit = Callable[..., Page]


def test_this_browser_remembers_what_it_has_run_and_forgets_it_on_request(app: str, visit: Visit) -> None:
    page = visit(app)
    alerts: list[str] = []

    def note(dialog: Dialog) -> None:
        alerts.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)
    expect(page.get_by_text("Recent on this device")).to_have_count(0)
    for study in (start.sample_study("tiny").named(HOSTILE), replace(start.sample_study("tiny"), repeats=2)):
        page.goto(f"{app}/compare?s={study.pack()}")
        page.get_by_role("button", name="Run this scenario").click()
        page.wait_for_function("id => (localStorage.getItem('trainyard-recent') || '').includes(id)", arg=study.digest)
    page.get_by_role("link", name="Start", exact=True).click()
    links = page.locator("#ty-recent a")
    expect(links).to_have_text(["Twelve jobs by hand", HOSTILE])
    assert page.locator("#ty-recent img, #ty-recent script").count() == 0
    links.last.click()
    expect(page.get_by_text("Up to date. Stored result")).to_be_visible()
    expect(page).to_have_title(f"{HOSTILE} · Trainyard")
    expect(page).to_have_url(re.compile(r"/compare\?s=.*r=1"))
    page.get_by_role("link", name="Start", exact=True).click()
    # Seen again, so it is the first now.
    expect(links).to_have_text([HOSTILE, "Twelve jobs by hand"])
    page.get_by_role("button", name="Forget Twelve jobs by hand").click()
    expect(links).to_have_text([HOSTILE])
    page.get_by_role("button", name="Forget all").click()
    expect(page.get_by_text("Recent on this device")).to_have_count(0)
    assert json.loads(page.evaluate("localStorage.getItem('trainyard-recent')")) == []
    assert alerts == []


def test_a_scenario_travels_with_its_jobs(app: str, visit: Visit, tmp_path: Path) -> None:
    page = visit(f"{app}/compare?s={start.sample_study('tiny').pack()}")
    sidebar = page.get_by_test_id("stSidebar")
    sidebar.get_by_role("button", name="Save scenario").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Scenario and jobs (ZIP)").click()
    saved = tmp_path / "mine.zip"
    waiting.value.save_as(saved)
    assert set(zipfile.ZipFile(saved).namelist()) == {"scenario.json", "trace.json", "trace.parquet"}
    page.goto(app)
    expect(sidebar.get_by_text("1,200 jobs")).to_be_visible()
    page.get_by_test_id("stFileUploader").locator("input[type=file]").set_input_files(saved)
    expect(page.get_by_text("mine.zip is open with 12 jobs")).to_be_visible()
    expect(sidebar.get_by_text("12 jobs")).to_be_visible()


def test_undo_takes_a_change_back_where_it_was_made(app: str, visit: Visit) -> None:
    page = visit(f"{app}/cluster")
    page.get_by_placeholder("16x8:v100,4x4:t4,2x0:cpu").fill("16x8:a100")
    page.get_by_placeholder("16x8:v100,4x4:t4,2x0:cpu").press("Enter")
    page.get_by_role("button", name="Use").click()
    sidebar = page.get_by_test_id("stSidebar")
    expect(sidebar.get_by_text("16 × 8 a100")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(sidebar.get_by_text("4 × 8 a100")).to_be_visible()
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)

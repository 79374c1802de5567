"""What only a browser can show of Start and of the scenario beside every page."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect

from trainyard.traces import new_study

pytestmark = [pytest.mark.browser, pytest.mark.slow]
HOSTILE = '"></div><img src=x onerror=alert(1)><script>alert(2)</script>'
TOKEN = "document.cookie.includes('trainyard_browser=')"
Visit = Callable[..., Page]


def test_a_fresh_server_shows_the_sample_as_soon_as_it_has_run(app: str, visit: Visit) -> None:
    page = visit(app)
    expect(page.locator(".st-key-picture .js-plotly-plot")).to_be_visible()
    expect(page.locator(".st-key-picture")).to_contain_text("at most 56 with EASY backfilling")


def test_a_browser_finds_its_runs_again_and_nobody_elses(
    app: str, browser: Browser, tmp_path: Path
) -> None:
    mine, other = (
        browser.new_context(accept_downloads=True, timezone_id=zone)
        for zone in ("Asia/Tokyo", "America/New_York")
    )
    alerts: list[str] = []

    def note(dialog: Dialog) -> None:
        alerts.append(dialog.message)
        dialog.dismiss()

    page = mine.new_page()
    page.on("dialog", note)
    for study in (
        new_study.sample_study("tiny").with_name(HOSTILE),
        replace(new_study.sample_study("tiny"), repeats=2),
    ):
        page.goto(f"{app}/compare?s={study.pack()}")
        page.get_by_role("button", name="Run this scenario").click()
        expect(page.get_by_text("Up to date")).to_be_visible()
        # Whoever leaves before the browser has its token comes back as somebody else.
        page.wait_for_function(TOKEN)
    link = page.url
    # Another session of the same browser, in its own time.
    page.goto(app)
    titles = page.locator("[class*=st-key-runs-open] button")
    expect(titles).to_have_text([re.compile("on Twelve jobs by hand$"), HOSTILE])
    tokyo = datetime.now(ZoneInfo("Asia/Tokyo"))
    expect(
        page.get_by_text(
            re.compile(rf"8 runs · today {tokyo:%H}:\d\d|{tokyo - timedelta(hours=1):%H}:5\d")
        ).first
    ).to_be_visible()
    titles.last.click()
    expect(page.get_by_text("Up to date")).to_be_visible()
    expect(page).to_have_title(f"{HOSTILE} · Trainyard")
    expect(page).to_have_url(re.compile(r"/compare\?s=.*r=1"))
    # Somebody else has none of it, until a link with results is opened.
    theirs = other.new_page()
    theirs.goto(app)
    expect(theirs.get_by_role("button", name="Run the sample")).to_be_visible()
    expect(theirs.get_by_text("Your runs")).to_have_count(0)
    theirs.goto(link)
    expect(theirs.get_by_text("Up to date")).to_be_visible()
    theirs.wait_for_function(TOKEN)
    theirs.goto(app)
    expect(theirs.locator("[class*=st-key-runs-open] button")).to_have_text(
        [re.compile("on Twelve jobs by hand$")]
    )
    # Seen again, so it is the first now; chosen, taken along, deleted here, and still there for the
    # other one.
    page.get_by_role("link", name="Trainyard", exact=True).click()
    expect(titles).to_have_text([HOSTILE, re.compile("on Twelve jobs by hand$")])
    for at in (0, 1):
        page.locator("[class*=st-key-runs-row] [data-testid=stCheckbox]").nth(at).click()
        expect(page.get_by_text(f"{at + 1} chosen")).to_be_visible()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_text("From A to B: repeats 2 → 1.")).to_be_visible()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Export (ZIP)").click()
    waiting.value.save_as(tmp_path / "runs.zip")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete 2").click()
    expect(page.get_by_text("2 removed from your list, 0 results deleted.")).to_be_visible()
    expect(titles).to_have_count(0)
    theirs.reload()
    expect(theirs.locator("[class*=st-key-runs-open] button")).to_have_count(1)
    page.get_by_test_id("stFileUploader").locator("input[type=file]").first.set_input_files(
        tmp_path / "runs.zip"
    )
    expect(page.get_by_text("2 entries are imported from runs.zip")).to_be_visible()
    expect(titles).to_have_count(2)
    assert alerts == []
    for context in (mine, other):
        context.close()


def test_a_scenario_travels_with_its_jobs(app: str, visit: Visit, tmp_path: Path) -> None:
    page = visit(f"{app}/trace")
    jobs = "job_id,submit_time_s,num_gpus,duration_s\n"
    jobs += "".join(f"j{at},{at},1,600\n" for at in range(12))
    page.get_by_test_id("stFileUploader").locator("input[type=file]").first.set_input_files(
        {"name": "twelve.csv", "mimeType": "text/csv", "buffer": jobs.encode()}
    )
    expect(page.locator(".st-key-bar").get_by_text("twelve.csv", exact=True)).to_be_visible()
    page.locator(".st-key-share button").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Scenario file, with its jobs").click()
    saved = tmp_path / "mine.zip"
    waiting.value.save_as(saved)
    assert set(zipfile.ZipFile(saved).namelist()) == {
        "scenario.json",
        "trace.json",
        "trace.parquet",
    }
    page.goto(app)
    bar = page.locator(".st-key-bar")
    page.get_by_test_id("stFileUploader").locator("input[type=file]").first.set_input_files(saved)
    expect(page.get_by_text("mine.zip is open with 12 jobs")).to_be_visible()
    expect(bar.get_by_text("twelve.csv", exact=True)).to_be_visible()


def test_undo_takes_a_change_back_where_it_was_made(app: str, visit: Visit) -> None:
    page = visit(f"{app}/cluster")
    cluster = page.locator(".st-key-chip_cluster")
    expect(cluster.get_by_text("64 GPUs")).to_be_visible()
    cluster.get_by_role("button").click()
    field = page.get_by_label("Nodes of 8 × v100")
    field.fill("12")
    field.press("Enter")
    expect(cluster.get_by_text("128 GPUs")).to_be_visible()
    # What was typed is still there to be typed over.
    expect(field).to_be_focused()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Undo").click()
    expect(cluster.get_by_text("64 GPUs")).to_be_visible()
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)

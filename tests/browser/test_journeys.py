"""What a user does, in a real browser: every journey ends on something the user can see."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Dialog, Page, expect

from trainyard.traces import new_study

pytestmark = [pytest.mark.browser, pytest.mark.slow]
FIGURES = 2
"""Of Compare: over time, and the completion curve."""
Visit = Callable[..., Page]

WRONG_FILES = (
    ("none.csv", b"", "empty"),
    ("paper.csv", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj", "PDF"),
)
BAD_ROWS = "\n".join(
    [
        "job_id;submit_time_s;num_gpus;duration_s;user",
        *(f"j{at};{at * 60};{1 + at % 4};{600 + at};ann" for at in range(40)),
        "=cmd;30;1;-5;bob",
        "late;90;2;nan;bob",
        "j3;95;1;100;bob",
        "half;99;0.5;100;bob",
    ]
)


def upload(page: Page, name: str, content: bytes) -> None:
    page.get_by_test_id("stFileUploader").locator("input[type=file]").first.set_input_files(
        {"name": name, "mimeType": "text/csv", "buffer": content}
    )


def test_an_upload_says_what_was_left_out_and_stays_after_a_reload(
    sample_app: str, visit: Visit
) -> None:
    page = visit(f"{sample_app}/trace")
    upload(page, "mine.csv", BAD_ROWS.encode())
    main = page.get_by_test_id("stMain")
    account = main.locator(".st-key-account")
    counts = "41 used + 3 left out = 44 read"
    expect(account).to_contain_text(counts)
    expect(account).to_contain_text("the GPU count is a fraction: rounded up")
    expect(account.get_by_text("altered", exact=True)).to_have_count(1)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="All rows left out or altered (CSV)").click()
    text = waiting.value.path().read_text()
    assert "'=cmd" in text
    assert ",=cmd" not in text
    expect(page.locator(".st-key-bar").get_by_text("mine.csv", exact=True)).to_be_visible()
    page.reload()
    expect(page.locator(".st-key-bar").get_by_text("mine.csv", exact=True)).to_be_visible()
    expect(account).to_contain_text(counts)


def test_a_wrong_file_gets_one_sentence_that_stays_and_so_does_the_old_trace(
    sample_app: str, visit: Visit, tmp_path: Path
) -> None:
    page = visit(f"{sample_app}/trace")
    trace = page.locator(".st-key-bar").get_by_text("A week on two GPU types")
    expect(trace).to_be_visible()
    fault = page.get_by_test_id("stMain").get_by_test_id("stAlert")
    for name, content, said in WRONG_FILES:
        upload(page, name, content)
        expect(fault).to_have_count(1)
        expect(fault).to_contain_text(said)
        expect(trace).to_be_visible()
    # A file that is too large does not hide what is wrong with another.
    with (tmp_path / "big.csv").open("wb") as file:
        file.truncate(230_000_000)
    page.get_by_test_id("stFileUploader").locator("input[type=file]").first.set_input_files(
        tmp_path / "big.csv"
    )
    expect(page.get_by_text("File must be 200.0MB or smaller")).to_be_visible()
    expect(fault).to_be_visible()
    told = page.get_by_test_id("stFileUploader").first.evaluate(
        "field => getComputedStyle(field, '::after').content"
    )
    assert told.startswith('"A file with a red mark is not taken')


def test_text_from_outside_is_shown_as_it_is(sample_app: str, visit: Visit) -> None:
    page = visit(f"{sample_app}/trace")
    hostile = "<img src=x onerror=alert(1)> **b** $x$ `y` _q_ :smile: [a](b) -- x_1 *c*"
    alerts: list[str] = []

    def note(dialog: Dialog) -> None:
        alerts.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)
    upload(page, f"{hostile}.pdf.csv", b"%PDF-1.7")
    fault = page.get_by_test_id("stMain").get_by_test_id("stAlert")
    expect(fault).to_be_visible()
    assert f"{hostile}.pdf.csv" in fault.inner_text().replace("\u2060", "")
    assert fault.locator("img, strong, em, code, a, .katex").count() == 0
    upload(
        page,
        f"{hostile}.csv",
        f'job_id,submit_time_s,num_gpus,duration_s,user\na,0,1,60,"{hostile}"\nb,9,1,60,ann\n'.encode(),
    )
    chip = page.locator(".st-key-chip_trace button")
    expect(chip).to_contain_text("onerror")
    main = page.get_by_test_id("stMain")
    read = main.locator(".st-key-account").locator("[data-testid='stMarkdown']").first
    for place, text in ((chip, hostile[:30]), (read, hostile)):
        assert text in place.inner_text().replace("\u2060", "")
        assert place.locator("img, em, code, .katex").count() == 0
    users = main.locator("[class*=st-key-users] .js-plotly-plot")
    expect(users).to_contain_text("<img src=x onerr")
    assert alerts == []


def test_back_leads_to_the_page_before(sample_app: str, visit: Visit) -> None:
    page = visit(sample_app)
    titles = {
        "Trace": re.compile("1,200 jobs"),
        "Cluster": re.compile("64 GPUs on 8 nodes"),
        "Policies": re.compile("policies compared"),
    }
    for name, title in titles.items():
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.locator("h1").first).to_have_text(title)
        expect(page).to_have_url(re.compile(rf"/{name.lower()}\?s="))
    page.locator(".st-key-bar").get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("Up to date")).to_be_visible()
    expect(page.locator(".js-plotly-plot")).to_have_count(FIGURES)
    for title in (*reversed(titles.values()), "Trainyard"):
        page.go_back()
        expect(page.locator("h1").first).to_have_text(title)


def test_cancel_stops_a_long_run(sample_app: str, visit: Visit) -> None:
    long = replace(new_study.sample_study("philly-like"), repeats=60)
    page = visit(f"{sample_app}/compare?s={long.pack()}")
    page.get_by_role("button", name="Run this scenario").click()
    cancel = page.get_by_role("button", name="Cancel")
    row = page.locator(".ty-ledger tbody tr").first
    expect(row.get_by_role("progressbar")).to_be_visible()
    expect(row).to_contain_text(re.compile(r"\d %.*(\d+ of 60 runs|next|reading)"))
    cancel.click()
    expect(cancel).to_have_count(0)
    expect(page.get_by_text(re.compile(r"^Cancelled")).first).to_be_visible()

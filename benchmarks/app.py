"""Seconds in a real browser: cold start, a widget, and from Run to the charts of four policies."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from playwright.sync_api import Page, expect, sync_playwright

from benchmarks.unit import print_figures
from sim.contract import Spec
from tests.browser.server import FLAGS, chromium, serving
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces.samples import load_sample

POLICIES = ("fifo", "sjf", "easy", "srtf")
MAX_S = 1.5


def main(_arguments: list[str]) -> Iterator[str]:
    """Print the figures in seconds and yield exceeded budgets."""
    expect.set_options(timeout=60_000)
    _, cluster = load_sample("philly-like")
    base = Scenario(TraceSpec.of("sample:philly-like"), cluster, Spec("fifo"))
    study = Study(base, tuple(map(Spec, POLICIES)))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        began = perf_counter()
        with serving(Path(folder) / "store") as address:
            healthy_s = perf_counter() - began
            page = browser.new_page(viewport={"width": 1440, "height": 1000})
            page.goto(address)
            expect(page.get_by_role("button", name="Run the sample")).to_be_visible()
            print_figures(
                **{
                    "server healthy": round(healthy_s, 2),
                    "first page painted": round(perf_counter() - began, 2),
                }
            )
            page.goto(f"{address}/compare?s={study.pack()}")
            run = page.locator(".st-key-bar").get_by_role("button", name="Run", exact=True)
            expect(run).to_be_enabled()
            for figure, seed in (
                ("click to charts, first run of this server", 0),
                ("click to charts, warm", 101),
                ("click to charts, warm again", 102),
            ):
                _set_seed(page, seed)
                began = perf_counter()
                run.click()
                expect(page.get_by_text("Up to date")).to_be_visible(timeout=60_000)
                expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
                seconds = round(perf_counter() - began, 2)
                print_figures(**{figure: seconds})
                if "warm" in figure and seconds > MAX_S:
                    yield f"{figure}: {seconds} s"
            began = perf_counter()
            _set_seed(page, 7)
            print_figures(**{"reaction to a widget": round(perf_counter() - began, 2)})
        browser.close()


def _set_seed(page: Page, seed: int) -> None:
    """Set the seed in the scenario bar and wait until the bar shows it."""
    chip = page.locator(".st-key-chip_runs button").first
    chip.click()
    field = page.get_by_label("Seed", exact=True)
    field.fill(str(seed))
    field.press("Enter")
    expect(chip).to_contain_text(f"seed {seed}")
    page.keyboard.press("Escape")

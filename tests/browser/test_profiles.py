from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from sim.cluster import Cluster
from sim.params import Spec
from sim.perf.measured import built_in
from trainyard.study.scenario import TraceSpec
from trainyard.traces import new_study

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[..., Page]
MINE = built_in("simulation").to_frame().query("model != 'CycleGAN'").to_csv(index=False).encode()


def test_own_measurements_lead_to_who_gets_which_gpu(sample_app: str, visit: Visit) -> None:
    tiny = new_study.sample_study("tiny")
    # Enough work for policies to differ, and no more than the cluster can do: else Compare has no
    # tabs.
    base = replace(
        tiny.base,
        trace=TraceSpec("made:gavel:jobs=60,per_h=1"),
        cluster=Cluster.parse("1x8:v100,1x8:k80"),
        perf=Spec("profiled"),
    )
    study = replace(tiny, base=base, allocators=(Spec("fifo"), Spec("sjf")), baseline=0)
    page = visit(f"{sample_app}/trace?s={study.pack()}")
    main = page.get_by_test_id("stMain")
    expect(main.get_by_text("All 60 jobs were measured")).to_be_visible()
    main.get_by_text("Use your own measurements").click()
    main.locator("input[type=file]").last.set_input_files(
        {"name": "mine.csv", "mimeType": "text/csv", "buffer": MINE}
    )
    expect(main.get_by_text("No measurement exists for 4 of 60 jobs")).to_be_visible()
    main.get_by_role("button", name="Leave out 4 jobs").click()
    expect(main.get_by_text("All 56 jobs were measured")).to_be_visible()
    page.reload()
    expect(main.get_by_text("All 56 jobs were measured")).to_be_visible()
    page.locator(".st-key-bar").get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("Up to date")).to_be_visible()
    main.get_by_role("tab", name="GPU types").click()
    expect(main.get_by_text(re.compile("Shares of GPU types under"))).to_be_visible()
    main.get_by_text("Finish-time fairness", exact=True).click()
    expect(main.get_by_text("JCT / JCT in isolation")).to_be_visible()

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from playwright.sync_api import Page, expect

from sim.cluster import Cluster
from sim.params import Spec
from sim.perf.measured import built_in
from trainyard.study.scenario import TraceSpec
from trainyard.traces import start

Visit = Callable[..., Page]
MINE = built_in("simulation").to_frame().query("model != 'CycleGAN'").to_csv(index=False).encode()


def test_own_measurements_lead_to_who_gets_which_gpu(app: str, visit: Visit) -> None:
    tiny = start.sample_study("tiny")
    base = replace(tiny.base, trace=TraceSpec("made:gavel:jobs=12,per_h=6"), cluster=Cluster.parse("1x8:v100,1x8:k80"), perf=Spec("profiled"))
    page = visit(f"{app}/policies?s={replace(tiny, base=base, allocators=(Spec('fifo'), Spec('sjf')), baseline=0).pack()}")
    main = page.get_by_test_id("stMain")
    expect(main.get_by_text("Every one of the 12 jobs was measured")).to_be_visible()
    main.get_by_text("Use your own measurements").click()
    main.locator("input[type=file]").first.set_input_files({"name": "mine.csv", "mimeType": "text/csv", "buffer": MINE})
    expect(main.get_by_text("Nothing was measured of 1 of 12 jobs")).to_be_visible()
    main.get_by_role("button", name="Leave out 1 job").click()
    expect(main.get_by_text("Every one of the 11 jobs was measured")).to_be_visible()
    page.reload()
    expect(main.get_by_text("Every one of the 11 jobs was measured")).to_be_visible()
    page.get_by_test_id("stSidebar").get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("Up to date")).to_be_visible()
    main.get_by_role("button", name="Compare all the same").click()
    main.get_by_text("GPU types", exact=True).click()
    expect(main.get_by_text("Who gets which GPUs?")).to_be_visible()
    main.get_by_text("Finish-time fairness", exact=True).click()
    expect(main.get_by_text("JCT / JCT in isolation")).to_be_visible()

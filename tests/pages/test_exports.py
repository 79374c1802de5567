from __future__ import annotations

import zipfile
from io import BytesIO
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from sim.params import Spec
from tests.pages.conftest import FakePool, Open, finish, sound, study_of
from trainyard.export.targets import patch_of_stored_runs
from trainyard.results import exports, outcomes
from trainyard.study.study import Study
from trainyard.traces.sources import load_trace
from ui.comparing import exports as exported


def download(app: AppTest, label: str) -> Any:
    return next(
        button.proto for button in app.get("download_button") if button.proto.label == label
    )


def shared(app: AppTest) -> AppTest:
    """Open the menu Share."""
    app.session_state["share"] = True
    return app.run()


def test_the_report_waits_for_a_complete_policy(visit: Open, tiny: Study, pool: FakePool) -> None:
    waiting = download(shared(visit("trace", tiny)), "Report (HTML)")
    assert waiting.disabled
    assert waiting.help == "No complete result yet. Run the scenario first."
    finish(pool, tiny, [0])
    ready = download(shared(visit("trace", tiny)), "Report (HTML)")
    assert not ready.disabled
    assert not ready.help


def export(app: AppTest) -> AppTest:
    """Open the tab Export of Compare."""
    app.session_state["compare_tabs"] = "Export"
    app.run()
    sound(app)
    return app


def test_results_that_were_removed_meanwhile_are_not_offered(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = export(visit("compare", tiny))
    entry = outcomes.gather(tiny, pool.store).entries[1][0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool.store, "has", lambda key: key != entry.key)
        app.run()
        sound(app)
        assert "deleted from this server" in "".join(warning.value for warning in app.warning)
        assert not app.get("download_button")
    app.button(key="forget_entries").click().run()
    sound(app)
    assert len(app.get("download_button")) == 2


def test_the_files_are_listed_and_large_tables_are_parquet_only(
    visit: Open, tiny: Study, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(pool, tiny)
    app = export(visit("compare", tiny))
    listed = dict(app.dataframe[0].value.itertuples(index=False))
    jobs = 12 * len(tiny.allocators)
    assert listed["jobs.csv"].startswith(f"{jobs} rows")
    assert listed["jobs.csv"] == listed["jobs.parquet"]
    with zipfile.ZipFile(BytesIO(exported.archive(outcomes.gather(tiny, pool.store)))) as files:
        assert set(files.namelist()) == set(listed)
        assert len(pd.read_parquet(BytesIO(files.read("jobs.parquet")))) == jobs
    assert "apostrophe" in "".join(item.value for item in app.caption)
    monkeypatch.setattr(exports, "CSV_LIMIT_MB", 0.0)
    app = export(visit("compare", tiny))
    listed = dict(app.dataframe[0].value.itertuples(index=False))
    assert listed["jobs.csv"].startswith("omitted")
    assert listed["jobs.parquet"].startswith(f"{jobs} rows")


KAI = """apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {{name: all}}
spec: {{resources: {{gpu: {{quota: {quota}}}}}}}
"""


def test_a_scheduler_of_a_site_is_taken_home_as_a_patch(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    both = tiny.choosing([Spec.of("kai", queues=KAI.format(quota=quota)) for quota in (4, 8)], 0)
    finish(pool, both)
    app = visit("compare", both)
    app.query_params["high"] = both.titles[1]
    button = download(export(app), "Export configuration (patch)")
    assert both.titles[1] in button.help
    runs = outcomes.gather(both, pool.store)
    text = patch_of_stored_runs(runs, 0, 1, load_trace(both.base.trace, pool.store), pool.store)
    assert "spec.resources.gpu.quota: 4 -> 8" in text
    assert "Simulated by Trainyard: run " in text


CONF = """SchedulerParameters=bf_interval=60
NodeName=n[1-4] CPUs=64 Gres=gpu:v100:8
PartitionName=main Nodes=ALL Default=YES
"""


def test_what_a_scheduler_cannot_run_is_replaced_by_its_nearest_setting(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    # The baseline is another one: the patch begins with the one that has a configuration.
    both = tiny.choosing([Spec("fifo"), Spec.of("slurm", conf=CONF), Spec("las")], 0)
    finish(pool, both)
    app = visit("compare", both)
    app.query_params["high"] = both.titles[1]
    assert "highlight the policy that replaces Slurm" in "".join(
        one.value for one in export(app).caption
    )
    app = visit("compare", both)
    app.query_params["high"] = both.titles[2]
    assert "Slurm cannot run LAS" in "".join(one.value for one in export(app).caption)
    app.button(key="export_nearest").click().run()
    sound(app)
    added = study_of(app).allocators[-1]
    assert dict(added.params)["half_life_h"] == 1.0
    assert pool.jobs


def test_nothing_is_offered_for_policies_that_no_site_configures(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = export(visit("compare", tiny))
    assert "Export configuration (patch)" not in [
        button.proto.label for button in app.get("download_button")
    ]


def test_the_camera_saves_what_was_chosen_on_every_page(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = export(visit("compare", tiny))
    app.segmented_control(key="image_format").set_value("svg").run()
    assert '"format": "svg"' in next(
        chart.proto.config for chart in app.get("plotly_chart") if chart.key == "over_time"
    )
    app.switch_page("pages/explore.py").run()
    app.run()
    charts = [chart.proto.config for chart in app.get("plotly_chart")]
    assert charts
    assert all('"format": "svg"' in config for config in charts)

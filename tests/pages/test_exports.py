from __future__ import annotations

import zipfile
from io import BytesIO
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.conftest import FakePool, Open, finish, sound
from trainyard.results import exports, outcomes
from trainyard.study.study import Study
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
    assert waiting.help == "There is no complete result yet. Run the scenario first."
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
        assert "removed from this server meanwhile" in "".join(
            warning.value for warning in app.warning
        )
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
    assert listed["jobs.csv"].startswith("left out")
    assert listed["jobs.parquet"].startswith(f"{jobs} rows")


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

from __future__ import annotations

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.conftest import FakePool, Open, finish, sound
from trainyard.results import exports, outcomes
from trainyard.study.study import Study


def download(app: AppTest, label: str) -> Any:
    return next(button.proto for button in app.get("download_button") if button.proto.label == label)


def test_the_report_waits_for_a_complete_policy(visit: Open, tiny: Study, pool: FakePool) -> None:
    waiting = download(visit("trace", tiny), "Report")
    assert waiting.disabled
    assert waiting.help == "There is no complete result yet. Run the scenario first."
    finish(pool, tiny, [0])
    ready = download(visit("compare", tiny), "Report")
    assert not ready.disabled
    assert not ready.help


def test_results_that_were_removed_meanwhile_are_not_offered(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    entry = outcomes.gather(tiny, pool.store).entries[1][0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool.store, "has", lambda key: key != entry.key)
        app.run()
        sound(app)
        assert "removed from this server meanwhile" in "".join(warning.value for warning in app.warning)
        assert "Jobs (CSV)" not in [button.proto.label for button in app.get("download_button")]
    app.button(key="forget_entries").click().run()
    sound(app)
    assert "Jobs (CSV)" in [button.proto.label for button in app.get("download_button")]


def test_large_tables_are_offered_as_parquet_only(visit: Open, tiny: Study, pool: FakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    assert not download(app, "Jobs (CSV)").disabled
    assert "apostrophe" in "".join(item.value for item in app.caption)
    monkeypatch.setattr(exports, "CSV_LIMIT_MB", 0.0)
    app = visit("compare", tiny)
    assert download(app, "Jobs (CSV)").disabled
    assert "take Parquet" in download(app, "Jobs (CSV)").help
    assert not download(app, "Jobs (Parquet)").disabled


def test_the_camera_saves_what_was_chosen_on_every_page(visit: Open, tiny: Study, pool: FakePool) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    app.segmented_control(key="image_format").set_value("svg").run()
    assert '"format": "svg"' in next(chart.proto.config for chart in app.get("plotly_chart") if chart.key == "parts")
    app.switch_page("pages/explore.py").run()
    app.run()
    charts = [chart.proto.config for chart in app.get("plotly_chart")]
    assert charts
    assert all('"format": "svg"' in config for config in charts)

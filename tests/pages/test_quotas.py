"""The tab Quotas of the Plan page."""

from __future__ import annotations

from sim.params import Spec
from tests.pages.conftest import FakePool, Open, sound, texts
from trainyard.study.study import Study


def test_the_quota_of_each_team_is_found(visit: Open, tiny: Study, pool: FakePool) -> None:
    specs = [Spec("recorded"), Spec("fifo"), Spec("sjf")]
    app = visit("plan", tiny.choosing(specs))
    app.query_params["tab"] = "quotas"
    app.run()
    sound(app)
    # Whatever the quotas are, a record stays as it is.
    assert app.selectbox(key="quotas_policy").options == ["FIFO", "SJF"]
    app.text_input(key="quotas_target").set_value("70 days").run()
    app.button(key="quotas_find").click().run()
    sound(app)
    table = app.dataframe[0].value
    # Whatever they wait: each team needs what its largest job asks for.
    assert list(table["Tenant"]) == ["language", "vision"]
    largest = {"language": 8, "vision": 4}
    needs = dict(zip(table["Tenant"], table["Quota needed (GPUs)"], strict=True))
    assert needs == {team: str(gpus) for team, gpus in largest.items()}
    assert "The quotas add up to 12 GPUs and the cluster has 8" in texts(app)
    assert app.code[0].value == "language: 8; vision: 4"
    del pool

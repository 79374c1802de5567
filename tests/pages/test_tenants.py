"""The tab Tenants of the Compare page."""

from __future__ import annotations

from dataclasses import replace

from sim.params import Spec
from tests.pages.conftest import FakePool, Open, finish, sound, texts
from tests.pages.test_compare import charts_of, tab
from trainyard.study.study import Study


def test_teams_are_compared_with_the_quotas_of_a_policy(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    quota = Spec.of("quota", table="vision: 5; language: 3")
    study = replace(tiny, allocators=(Spec("fifo"), quota), baseline=0)
    finish(pool, study, [0, 1])
    app = tab(visit("compare", study), "Tenants")
    assert "Tenants by virtual cluster. Quotas as policy quota has them." in texts(app)
    table = next(one.value for one in app.dataframe if "Tenant" in one.value)
    assert list(table["Tenant"]) == ["vision", "vision", "language", "language"]
    assert list(table["Policy"].unique()) == list(study.titles)
    assert list(table["Quota (GPUs)"]) == [5, 5, 3, 3]
    assert "Jain's index of used ÷ entitled, 1 = equal parts for all tenants:" in texts(app)
    assert "tenants" in charts_of(app)
    assert app.code[0].value == "vision: 5; language: 3"
    app.selectbox(key="teams_policy").select(study.titles[1]).run()
    sound(app)

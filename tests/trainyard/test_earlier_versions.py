"""What earlier versions wrote opens and gives the same numbers.

`before/lab` was written by the last version whose application layer was called lab, with the
results that this version gives; `before/format-1` by the one before it, when documents said
nothing of the cost of restarts: it was 0. Each holds a scenario, a link, an archive of the library
and the JSON of the runs; `lab` a whole store too.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from trainyard.library import archive, library
from trainyard.runs.run import key_of, run, summarise
from trainyard.store import Store
from trainyard.study.study import Study
from trainyard.traces.sources import load_trace

BEFORE = Path(__file__).parent / "before"
VERSIONS = ("lab", "format-1")


def read(version: str, name: str) -> Any:
    return json.loads((BEFORE / version / name).read_text(encoding="utf-8"))


def numbers(version: str) -> dict[str, float]:
    return {one["label"]: one["jct_mean_s"] for one in read(version, "run.json")["runs"]}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_scenario_and_its_link_are_the_same_study(version: str) -> None:
    study = Study.from_json(read(version, "scenario.json"))
    link = (BEFORE / version / "link.txt").read_text(encoding="utf-8").strip()
    assert Study.unpack(link) == study
    assert study.base.name == "Kept from before"
    restart_s = study.base.overheads.values.get("restart_s", 0)
    assert restart_s == {"lab": 60, "format-1": 0}[version]
    assert Study.from_json(study.to_json()) == study


def test_scenarios_of_the_last_version_give_the_same_numbers_under_the_same_keys() -> None:
    study = Study.from_json(read("lab", "scenario.json"))
    trace = load_trace(study.base.trace)
    for scenario, kept in zip(study.scenarios(), read("lab", "run.json")["runs"], strict=True):
        assert key_of(scenario) == kept["key"]
        assert summarise(scenario, run(scenario), trace)["jct_mean_s"] == kept["jct_mean_s"]


def test_rules_that_did_not_change_give_what_they_gave_before() -> None:
    study = Study.from_json(read("format-1", "scenario.json"))
    trace = load_trace(study.base.trace)
    kept = numbers("format-1")
    for scenario in study.scenarios()[:2]:
        found = summarise(scenario, run(scenario), trace)["jct_mean_s"]
        assert found == kept[scenario.allocator.name]


def test_an_archive_is_taken_over(version: str, tmp_path: Path) -> None:
    store, data = Store(tmp_path), (BEFORE / version / "archive.zip").read_bytes()
    taken = archive.unpack(store, "0" * 32, data, "archive.zip", results=True)
    [item] = library.items(store, "0" * 32)
    assert "Kept from before" in (item.name, item.title)
    study = item.recipe()
    assert isinstance(study, Study)
    # Results of an earlier results version are not those of these scenarios any more.
    assert (item.there, taken.left) == {"lab": (5, 0), "format-1": (0, 5)}[version]


def test_a_store_opens_with_its_results(tmp_path: Path) -> None:
    with zipfile.ZipFile(BEFORE / "lab" / "store.zip") as file:
        file.extractall(tmp_path)
    store = Store(tmp_path / "store")
    assert len(store.entries()) == 5
    for kept in read("lab", "run.json")["runs"]:
        entry = store.get(kept["key"])
        assert entry is not None
        assert entry.summary["jct_mean_s"] == kept["jct_mean_s"]
        assert len(entry.jobs()) == 12

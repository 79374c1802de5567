"""What earlier versions wrote opens and gives the same numbers.

`before/lab` was written by the last version whose application layer was called lab, with results
of version 3; `before/format-1` by the one before it, when documents said nothing of the cost of
restarts: it was 0. Each holds a scenario, a link, an archive of the library
and the JSON of the runs; `lab` a whole store too.

`before/head` was written when `backfill` was called `head` and `promote_factor` was called `knob`:
documents with their links, canonical texts and ids, and the keys of their runs.

`before/sim-readers` was written by the last version whose readers lay in sim, with results of
version 4, and `before/renamed` after modules were renamed, with results of version 5; they hold
what `lab` does.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.errors import ParameterError
from sim.params import Spec
from trainyard.library import archive, library
from trainyard.results import outcomes
from trainyard.runs.run import run, scenario_key, summarize_run
from trainyard.store import Store
from trainyard.study import scenario as scenario_module
from trainyard.study.branch_point import FromHere
from trainyard.study.document import Document
from trainyard.study.scenario import Scenario
from trainyard.study.settings import with_settings
from trainyard.study.study import Study
from trainyard.study.sweep import Axis, Sweep
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


@pytest.fixture
def results_of_version_3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute keys of results as the version that wrote `lab` and `head` did."""
    monkeypatch.setattr(scenario_module, "RESULTS_VERSION", 3)


@pytest.mark.usefixtures("results_of_version_3")
def test_keys_of_scenarios_differ_from_those_of_the_last_version_only_by_results_version() -> None:
    study = Study.from_json(read("lab", "scenario.json"))
    kept = [one["key"] for one in read("lab", "run.json")["runs"]]
    assert [scenario_key(scenario) for scenario in study.scenarios()] == kept


def test_scenarios_of_the_last_version_give_the_same_numbers_under_other_keys() -> None:
    study = Study.from_json(read("lab", "scenario.json"))
    trace = load_trace(study.base.trace)
    *others, gavel = study.scenarios()
    # Its recompute_s was 0 by default.
    at_once = replace(gavel, allocator=Spec.parse("gavel:objective=makespan,recompute_s=0"))
    kept = read("lab", "run.json")["runs"]
    for scenario, run_before in zip([*others, at_once], kept, strict=True):
        found = summarize_run(scenario, run(scenario), trace)["jct_mean_s"]
        assert found == run_before["jct_mean_s"]
    assert not {scenario_key(one) for one in study.scenarios()} & {one["key"] for one in kept}


@pytest.mark.parametrize(("version", "results"), [("sim-readers", 4), ("renamed", 5)])
def test_what_was_written_before_has_the_same_keys_and_numbers(
    version: str, results: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario_module, "RESULTS_VERSION", results)
    study = Study.from_json(read(version, "scenario.json"))
    link = (BEFORE / version / "link.txt").read_text(encoding="utf-8").strip()
    assert Study.unpack(link) == study
    kept = read(version, "run.json")["runs"]
    trace = load_trace(study.base.trace)
    for scenario, run_before in zip(study.scenarios(), kept, strict=True):
        assert scenario_key(scenario) == run_before["key"]
        found = summarize_run(scenario, run(scenario), trace)
        assert {name: found[name] for name in ("jct_mean_s", "queue_p95_s", "makespan_s")} == {
            name: run_before[name] for name in ("jct_mean_s", "queue_p95_s", "makespan_s")
        }
    with zipfile.ZipFile(BEFORE / version / "store.zip") as file:
        file.extractall(tmp_path)
    store = Store(tmp_path / "store")
    assert {one["key"] for one in kept} == {entry.key for entry in store.entries()}
    data = (BEFORE / version / "archive.zip").read_bytes()
    taken = archive.import_archive(
        Store(tmp_path / "new"), "0" * 32, data, "archive.zip", results=True
    )
    assert taken.left == 0


def test_rules_that_did_not_change_give_what_they_gave_before() -> None:
    study = Study.from_json(read("format-1", "scenario.json"))
    trace = load_trace(study.base.trace)
    kept = numbers("format-1")
    for scenario in study.scenarios()[:2]:
        found = summarize_run(scenario, run(scenario), trace)["jct_mean_s"]
        assert found == kept[scenario.allocator.name]


def test_an_archive_is_taken_over(version: str, tmp_path: Path) -> None:
    store, data = Store(tmp_path), (BEFORE / version / "archive.zip").read_bytes()
    taken = archive.import_archive(store, "0" * 32, data, "archive.zip", results=True)
    [item] = library.items(store, "0" * 32)
    assert "Kept from before" in (item.name, item.title)
    study = item.recipe()
    assert isinstance(study, Study)
    # Results of an earlier results version are not those of these scenarios any more.
    assert (item.there, taken.left) == (0, 5)


@pytest.mark.usefixtures("results_of_version_3")
def test_results_in_an_archive_of_the_same_results_version_are_taken_over(tmp_path: Path) -> None:
    store, data = Store(tmp_path), (BEFORE / "lab" / "archive.zip").read_bytes()
    taken = archive.import_archive(store, "0" * 32, data, "archive.zip", results=True)
    [item] = library.items(store, "0" * 32)
    assert (item.there, taken.left) == (5, 0)


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


def test_the_longest_wait_of_a_stored_run_comes_from_its_jobs(tmp_path: Path) -> None:
    with zipfile.ZipFile(BEFORE / "lab" / "store.zip") as file:
        file.extractall(tmp_path)
    store = Store(tmp_path / "store")
    kept = {one["label"]: one["key"] for one in read("lab", "run.json")["runs"]}
    entry = store.get(kept["fifo"])
    assert entry is not None
    assert "wait_max_s" not in entry.summary
    jobs = entry.jobs()
    waits_s = jobs["finish_s"] - jobs["submit_s"] - jobs["held_s"]
    study = Study.from_json(read("lab", "scenario.json"))
    shown = outcomes.StudyResults(study.only((0,)), ("FIFO",), ((kept["fifo"],),), ((entry,),))
    [summary] = outcomes.outcome(shown, 0).summaries
    assert summary["wait_max_s"] == pytest.approx(waits_s.max())
    assert summary["waits_over_day"] == (waits_s > 86_400).sum()
    numbers = store.numbers([kept["fifo"]])
    assert "wait_max_s" not in numbers[kept["fifo"]]


KINDS: dict[str, type[Document]] = {"study": Study, "sweep": Sweep, "what-if": FromHere}


@pytest.mark.parametrize("kind", KINDS)
def test_former_names_of_parameters_are_read_and_the_present_ones_written(kind: str) -> None:
    kept = read("head", "documents.json")[kind]
    made = KINDS[kind].from_json(kept["document"])
    assert KINDS[kind].unpack(kept["link"]) == made
    text = json.dumps(made.to_json())
    assert '"backfill": "first_fit"' in text
    assert not {"head", "knob", "skip", "block"} & set(text.replace(".", '"').split('"'))
    assert KINDS[kind].from_json(made.to_json()) == made
    # Digests, ids on a shelf and keys of replays are made of the canonical text.
    assert made.canonical() == kept["canonical"]
    assert library.recipe_id(made) == kept["identity"]  # type: ignore[arg-type]


@pytest.mark.usefixtures("results_of_version_3")
def test_runs_keep_their_keys_and_numbers_under_new_names() -> None:
    documents, kept = read("head", "documents.json"), read("head", "run.json")
    study = Study.from_json(documents["study"]["document"])
    assert study.digest == documents["study"]["digest"]
    assert [spec.values.get("backfill") for spec in study.allocators] == [
        "first_fit",
        "none",
        None,
        "none",
    ]
    trace = load_trace(study.base.trace)
    for scenario, run_before in zip(study.scenarios(), kept["runs"], strict=True):
        assert scenario_key(scenario) == run_before["key"]
        found = summarize_run(scenario, run(scenario), trace)["jct_mean_s"]
        assert found == run_before["jct_mean_s"]
    sweep = Sweep.from_json(documents["sweep"]["document"])
    assert [axis.path for axis in sweep.axes] == [
        "allocators.0.backfill",
        "allocators.1.promote_factor",
    ]
    cells = [scenario for _, scenario in sweep.cells()]
    assert all(isinstance(scenario, Scenario) for scenario in cells)
    assert [scenario_key(one) for one in cells if isinstance(one, Scenario)] == kept["cells"]


def test_a_setting_by_its_former_name_replaces_the_present_one() -> None:
    study = Study.from_json(read("head", "documents.json")["study"]["document"])
    changed = Study.from_json(with_settings(study.to_json(), ["allocators.0.head=block"]))
    assert changed.allocators[0] == Spec("fifo")


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("fifo:head=maybe", "head is called backfill now and takes none, first_fit; head = maybe"),
        ("fifo:head=skip,backfill=none", "backfill is given twice, because head is its former"),
        ("las:knob=-1", "las: promote_factor = -1 is outside 0 to"),
        ("fifo:knob=1", "fifo has no parameter 'knob'"),
    ],
)
def test_a_former_name_that_cannot_be_read_gets_the_present_one(policy: str, message: str) -> None:
    study = read("head", "documents.json")["study"]["document"]
    with pytest.raises(ParameterError, match=message):
        Study.from_json(study | {"allocators": [policy]})


def test_the_estimator_of_run_times_was_called_belief() -> None:
    now = Study.from_json(read("lab", "scenario.json"))
    noisy = with_settings(now.to_json(), ["belief=noisy:sigma=0.5"])
    assert noisy == with_settings(now.to_json(), ["estimator=noisy:sigma=0.5"])
    assert Study.from_json(noisy).base.estimator == Spec.of("noisy", sigma=0.5)
    base = dict(now.to_json()["base"])
    base["belief"] = base["estimator"]
    with pytest.raises(ParameterError, match="estimator twice"):
        Study.from_json(now.to_json() | {"base": base})
    former, axis = (
        Sweep(Study.from_json(noisy), (Axis(f"{name}.sigma", (0.5, 1.0)),))
        for name in ("belief", "estimator")
    )
    assert former == axis
    assert '"path":"belief.sigma"' in axis.canonical()
    assert '"path":"estimator.sigma"' in json.dumps(axis.to_json(), separators=(",", ":"))

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.shared import SetClock
from trainyard.library import library
from trainyard.library.library import BRIEF
from trainyard.runs.run import scenario_key
from trainyard.store import Store, StoreError
from trainyard.study.study import Study
from trainyard.study.sweep import Axis, Sweep
from trainyard.traces import new_study

KEPT = {
    "jct_mean_s": 100.0,
    "jct_p95_s": 200.0,
    "queue_mean_s": 0.0,
    "makespan_s": 1000.0,
    "utilisation": 0.5,
    "cost_held_per_job_usd": None,
}


def note(store: Store, study: Study, at: int, factor: float) -> None:
    """Keep numbers of all repeats of a policy; the second repeat has three times those of the
    first.
    """
    for turn, scenario in enumerate(study.policy_scenarios(at)):
        summary = {
            name: None if value is None else value * factor * (1 + 2 * turn)
            for name, value in KEPT.items()
        }
        store.put_numbers(scenario_key(scenario, store), summary, scenario.to_json())


def test_two_things_of_the_library_beside_each_other(tmp_path: Path) -> None:
    store, study = Store(tmp_path), new_study.sample_study("tiny")
    other = replace(
        study,
        base=replace(study.base, seed=7, name="other"),
        repeats=2,
        allocators=study.allocators[:1],
    )
    for at in range(2):
        note(store, study, at, 1.0 + at)
    note(store, other, 0, 2.0)
    for one in (study, other):
        library.shelve(
            store, "me", one, [scenario_key(scenario, store) for scenario in one.scenarios()]
        )
    second, first = library.items(store, "me")
    assert (second.name, second.runs, second.there) == ("other", 2, 2)
    found = library.compare_items(store, first, second)
    # Names are no difference.
    assert found.changes[0] == "seed 0 → 7"
    assert found.changes[-1] == "repeats 1 → 2"
    assert not [change for change in found.changes if "other" in change]
    assert list(found.second["seed"]) == [7, 8]
    means = found.means().set_index(["policy", "metric"])
    fifo, easy = found.first["policy"]
    assert list(dict.fromkeys(means.index.get_level_values("policy"))) == [fifo, easy]
    # Mean of 2 x 100 and 6 x 100 against 100.
    assert tuple(means.loc[(fifo, "jct_mean_s")]) == (100.0, 400.0, 3.0)
    # Nothing is a share of nothing.
    a, b, change = means.loc[(fifo, "queue_mean_s")]
    assert (a, b) == (0.0, 0.0)
    assert math.isnan(change)
    assert means.loc[(easy, "jct_mean_s"), "a"] == 200.0
    assert math.isnan(means.loc[(easy, "jct_mean_s"), "b"])
    assert means.loc[(fifo, "cost_held_per_job_usd")].isna().all()
    assert set(means.index.get_level_values("metric")) == set(BRIEF)


def test_nothing_is_beside_nothing(tmp_path: Path) -> None:
    store, study = Store(tmp_path), new_study.sample_study("tiny")
    library.shelve(store, "me", study, [])
    (one,) = library.items(store, "me")
    with pytest.raises(StoreError, match="Run them again"):
        library.compare_items(store, one, one)


def test_a_comparison_is_one_thing_whatever_it_is_called(tmp_path: Path) -> None:
    store, study = Store(tmp_path), new_study.sample_study("tiny")
    first = library.shelve(store, "me", study.with_name("  Monday\n"), ["aa" * 8])
    assert library.shelve(store, "me", study.with_name("Tuesday"), ["aa" * 8]) == first
    assert [one.name for one in library.items(store, "me")] == ["Monday"]
    # Nobody sees what somebody else calls it.
    library.shelve(store, "you", study, ["aa" * 8])
    (other,) = library.items(store, "you")
    assert (other.name, "Monday" in str(other)) == ("", False)


def test_what_tells_a_comparison_from_the_one_before(tmp_path: Path) -> None:
    store, study = Store(tmp_path), new_study.sample_study("tiny")
    fewer = replace(study, allocators=study.allocators[:2])
    for one in (
        study,
        fewer,
        Sweep(study, (Axis("trace.load", (1.0, 2.0)),)),
        replace(study, repeats=3),
    ):
        library.shelve(store, "me", one, [])
    found = library.items(store, "me")
    assert [library.predecessor(found, at) for at in range(4)] == [found[3], None, None, None]
    assert library.changes(store, found[3], found[0]) == ("repeats 1 → 3",)
    assert library.changes(store, found[2], found[1]) == ("+ SRTF", "+ Recorded schedule")


def test_taking_the_last_tag_off_leaves_nothing_to_be_kept_for(tmp_path: Path) -> None:
    clock = SetClock()
    store, study = Store(tmp_path, clock=clock), new_study.sample_study("tiny")
    key = scenario_key(study.scenarios()[0], store)
    store.put_numbers(key, KEPT, study.base.to_json())
    mark = library.shelve(store, "me", study, [key])
    library.label_item(store, "me", mark, tags=["talk"])
    clock.go_on(40.0)
    store.put_numbers("ab" * 16, KEPT, {})
    assert store.expire() == 0
    library.label_item(store, "me", mark, tags=[" "])
    assert store.expire() == 1
    # What is left is the recipe, to be run again.
    (one,) = library.items(store, "me")
    assert (one.tags, one.there, one.recipe()) == ((), 0, study)

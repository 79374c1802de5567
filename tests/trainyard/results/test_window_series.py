from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

from sim.metrics import integral, queue_series, utilisation_series
from trainyard.results import outcomes
from trainyard.results.window_series import MAX_BINS, _max_waiting, clock_bins, loads
from trainyard.runs.run import run, scenario_key, store_result
from trainyard.store import Store, StoredResult
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, StoredResult]:
    store, study = Store(tmp_path_factory.mktemp("loads")), new_study.sample_study()
    for at in range(2):
        scenario = study.policy_scenarios(at)[0]
        trace = load_trace(scenario.trace, store)
        store_result(
            store, scenario_key(scenario, store), scenario, run(scenario, trace=trace), trace
        )
    shown = outcomes.gather(study, store)
    return {shown.titles[at]: shown.entries[at][0] for at in shown.places}


@pytest.mark.parametrize(
    ("t0", "t1", "width"),
    [
        (0.0, 664_128.7, 5400.0),
        (10.0, 610.0, 5.0),
        (0.0, 9600.0, 60.0),
        (3600.0 * 5, 86_400.0 * 2, 1800.0),
        (0.0, 86_400.0 * 400, 86_400.0 * 5),
        (0.0, 86_400.0 * 400_000, 86_400.0 * 3000),
    ],
)
def test_bins_are_round_and_few(t0: float, t1: float, width: float) -> None:
    edges = clock_bins(t0, t1)
    assert set(np.diff(edges)) == {width}
    assert not (edges % width).any()
    assert edges[0] <= t0
    assert edges[-1] >= t1
    assert len(edges) - 1 <= MAX_BINS


def test_a_window_without_a_length_is_one_bin_of_a_second() -> None:
    assert clock_bins(5.0, 5.0).tolist() == [5.0, 6.0]


def test_bins_begin_at_the_midnight_of_the_calendar() -> None:
    edges = clock_bins(0.0, 664_128.7, midnight_s=-1200.0)
    assert not ((edges + 1200.0) % 5400.0).any()


def test_the_most_of_a_bin_counts_what_holds_at_its_begin_and_nothing_at_its_end() -> None:
    """The queue holds 0 until 5 s, 4 until 12 s, 31 until 13 s, then 2: bins of 10 s."""
    queue = pd.DataFrame({"t_s": [0.0, 5.0, 12.0, 13.0, 40.0], "waiting": [0, 4, 31, 2, 7]})
    bins = np.array([0.0, 10.0, 20.0, 30.0, 40.0])
    assert _max_waiting(queue, bins).tolist() == [4, 31, 2, 2]
    assert _max_waiting(queue, np.array([-10.0, 0.0, 12.5])).tolist() == [0, 31]


def test_means_are_exact_and_end_with_the_run(entries: Mapping[str, StoredResult]) -> None:
    study = new_study.sample_study()
    found = loads(entries, study.base.cluster)
    assert not found.exact
    first, other = (entry.result() for entry in entries.values())
    assert first.end_s != other.end_s
    for (title, entry), result in zip(entries.items(), (first, other), strict=True):
        queue = queue_series(result)
        held = utilisation_series(result, study.base.cluster)
        load = found.runs[title]
        for at in (0, 40, 100):
            a, b = found.edges_s[at : at + 2]
            times, waiting = queue["t_s"].to_numpy(), queue["waiting"].to_numpy()
            assert load.waiting[at] == pytest.approx(integral(times, waiting, a, b) / (b - a))
            used = integral(held["t_s"].to_numpy(), held["total"].to_numpy(), a, b)
            assert load.busy[at] == pytest.approx(100 * used / (b - a) / 64)
        ended = found.edges_s[:-1] >= result.end_s
        assert (np.isnan(load.waiting) == ended).all()
        assert load.peak == queue["waiting"].max()
        assert load.peak > np.nanmax(load.waiting)
        assert load.peak == np.nanmax(load.most)
        assert (load.waiting[~ended] <= load.most[~ended]).all()
        assert load.peak_s == queue["t_s"][queue["waiting"].idxmax()]
        assert entry.summary["end_s"] == result.end_s


def test_a_window_of_few_changes_has_the_steps_themselves(
    entries: Mapping[str, StoredResult],
) -> None:
    study = new_study.sample_study()
    window = (300_000.0, 302_000.0)
    found = loads(entries, study.base.cluster, window)
    assert found.exact
    assert len(found.edges_s) <= MAX_BINS
    assert (found.edges_s[0], found.edges_s[-1]) == window
    for title, entry in entries.items():
        queue = queue_series(entry.result())
        at = np.searchsorted(queue["t_s"], found.edges_s[:-1], "right") - 1
        assert found.runs[title].waiting == pytest.approx(queue["waiting"].to_numpy()[at])

"""Every figure of compared runs, as pages, reports and notebooks show it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import Spec
from tests.trainyard.results.test_exports import finished
from trainyard.formatting import time
from trainyard.results import outcomes
from trainyard.results.window_series import Load, Loads
from trainyard.store import Store
from trainyard.traces import new_study
from trainyard.views.compared_runs import ComparedRuns, compare_runs
from trainyard.views.over_time import area_note, queue, two_digits
from trainyard.views.registry import OF_METRICS, VIEWS, view, views


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> ComparedRuns:
    """Two policies on two GPU types, with wrong estimates of run times."""
    study = new_study.with_cluster(new_study.sample_study("tiny"), Cluster.parse("1x8:v100,1x4:t4"))
    study = replace(
        study,
        base=replace(study.base, estimator=Spec.of("noisy", sigma=1.0)),
        allocators=(Spec("fifo"), Spec("srtf")),
    )
    store = Store(tmp_path_factory.mktemp("store"))
    found = compare_runs(finished(study, store), store)
    assert found is not None
    return found


def test_every_view_has_a_question_a_finding_and_its_numbers(compared: ComparedRuns) -> None:
    every = views(compared)
    names = [one.name for one in every]
    assert len(names) == len(set(names))
    assert [name for name in names if not any(f"{name}-".startswith(f"{k}-") for k in VIEWS)] == []
    for one in every:
        assert one.figure.layout.title.text, one.name
        assert re.match(r"[A-Z].*\.$", one.alt), one.alt
        assert one.note == "" or re.match(r"[A-Z].*\.$", one.note), one.note
        assert one.data is not None
        rows = one.data()
        assert len(rows), one.name
        assert all(str(column)[0].isupper() or "(share)" in column for column in rows), one.name


def test_a_kind_stands_for_its_first_figure(compared: ComparedRuns) -> None:
    assert view(compared, "allocation").name == "allocation-1"
    assert view(compared, "allocation-2").name == "allocation-2"
    assert view(compared, "type-use").name == "type-use"
    with pytest.raises(ParameterError, match=r"There is no figure 'allocation-9' here. There are"):
        view(compared, "allocation-9")


def test_a_metric_is_one_bar_per_policy_in_its_color(compared: ComparedRuns) -> None:
    bars = view(compared, "wait_max_s")
    table = compared.report.table
    waits = table[table["metric"] == "wait_max_s"].set_index("label")["value"]
    (trace,) = bars.figure.data
    assert list(trace.marker.color) == [compared.style[title][0] for title in compared.drawn]
    assert list(trace.text) == [time(value) for value in waits]
    assert list(bars.figure.layout.yaxis.ticktext) == list(waits.index) == list(compared.drawn)
    assert bars.alt == (
        f"Longest wait, by policy: FIFO {time(waits['FIFO'])}; SRTF {time(waits['SRTF'])}."
    )
    assert bars.data is not None
    assert list(bars.data()) == ["Policy", "Longest wait (s)"]
    # No job has a deadline.
    with pytest.raises(ParameterError, match="There is no figure 'deadline_rate' here"):
        view(compared, "deadline_rate")


def test_no_figure_of_gpus_without_gpus_and_none_of_changes_without_a_baseline(
    compared: ComparedRuns, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = Store(tmp_path_factory.mktemp("alone"))
    study = replace(new_study.sample_study("tiny"), allocators=(Spec("fifo"),))
    found = compare_runs(finished(study, store), store)
    assert found is not None
    kinds = {one.name.split("-")[0] for one in views(found)}
    assert kinds - OF_METRICS.keys() == {"queue", "gpus", "jct_cdf", "allocation", "tenants"}
    missing = outcomes.gather(replace(study, base=replace(study.base, seed=9)), store)
    assert compare_runs(missing, store) is None


def test_series_on_other_instants_share_one_table(compared: ComparedRuns) -> None:
    # By hand: jobs wait from 0 to 10; a GPU is held from 5 on.
    def frame(t_s: list[float], **columns: list[float]) -> pd.DataFrame:
        return pd.DataFrame({"t_s": t_s, **columns})

    still = {state: [0.0, 0.0] for state in ("busy", "paused", "fragmented", "idle", "down")}
    title = compared.drawn[0]
    made = replace(
        compared,
        report=replace(compared.report, labels=(title,)),
        frames={
            "queue": {title: frame([0, 10], waiting=[2.0, 0.0], waiting_high=[3.0, 0.0])},
            "utilisation": {title: frame([0, 5], total=[0.0, 1.0])},
            "capacity": {title: frame([0, 5], total=[2.0, 2.0])},
            "states": {title: frame([0, 5], **still)},
        },
    )
    shown = queue(made, made.look(title, alone=True))
    assert shown.data is not None
    rows = shown.data()
    assert rows["Time (s)"].tolist() == [0, 5, 10]
    assert rows["Jobs waiting"].tolist() == [2, 2, 0]
    assert rows["GPUs held"].tolist() == [0, 1, 1]
    assert f"Longest queue: {title} {made.loads.runs[title].peak:.0f}." in shown.alt


def weighed(
    compared: ComparedRuns, base: list[float], high: list[float], window: tuple[float, float]
) -> str:
    """What is said of the area between two queues in bins of an hour from second 0 on."""
    edges_s = 3600.0 * np.arange(len(base) + 1)
    nothing = np.zeros(len(base))
    pairs = zip((compared.baseline, compared.report.labels[-1]), (base, high), strict=True)
    runs = {
        title: Load(np.array(waiting), np.array(waiting), nothing, 0.0, 0.0)
        for title, waiting in pairs
    }
    made = replace(compared, window=window, computed={window: Loads(edges_s, True, runs)})
    return area_note(made, compared.report.labels[-1])


def test_hours_of_waiting_in_a_window_are_the_area_between_the_queues(
    compared: ComparedRuns,
) -> None:
    # Half of the first hour is seen: 26 jobs less for 1/2 h, then 9 less for 1 h; nothing of the
    # third hour counts.
    window, many, few = (1800.0, 7200.0), [30.0, 10.0, 50.0], [4.0, 1.0, 0.0]
    assert weighed(compared, many, few, window) == "22 job-h saved in this window"
    assert weighed(compared, few, many, window) == "22 job-h added in this window"
    # 0.4 h is too little to be told, 0.6 h is 1.
    assert weighed(compared, [0.4], [0.0], (0.0, 3600.0)) == ""
    assert weighed(compared, [0.6], [0.0], (0.0, 3600.0)).startswith("1 job-h saved")
    # Two digits: 3,587 h.
    assert weighed(compared, [3587.0], [0.0], (0.0, 3600.0)).startswith("3,600 job-h saved")


def test_hours_of_waiting_of_whole_runs_are_those_of_the_mean_wait(compared: ComparedRuns) -> None:
    base, high = compared.baseline, compared.report.labels[-1]
    waits = pd.DataFrame(
        {"label": [base, high], "metric": "wait_mean_s", "value": [7200.0, 5400.0]}
    )

    def said(done: int, table: pd.DataFrame) -> str:
        counts = pd.DataFrame({"label": [base, high], "completed": [300, done]})
        return area_note(
            replace(compared, report=replace(compared.report, table=table, counts=counts)), high
        )

    # Half an hour less for each of the 296 jobs completed under both at least.
    assert said(296, waits) == "150 job-h saved"
    assert said(296, waits.assign(value=[5400.0, 7200.0])) == "150 job-h added"
    assert said(24, waits) == "12 job-h saved"
    assert area_note(compared, base) == ""


def test_two_digits_of_a_number_mean_something() -> None:
    given = (0.7, 9.4, 87.0, 147.0, 3587.0, 12_345.0)
    assert [two_digits(one) for one in given] == ["1", "9", "87", "150", "3,600", "12,000"]

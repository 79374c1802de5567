from __future__ import annotations

from dataclasses import replace

from sim.cluster import Cluster
from trainyard.runs.frames import SERIES, chart_frames, repeat_note
from trainyard.runs.run import run
from trainyard.study.scenario import Scenario, TraceSpec


def test_frames_of_a_run_are_reduced_for_figures(scenario: Scenario) -> None:
    week = replace(
        scenario, trace=TraceSpec("sample:week"), cluster=Cluster.parse("3x8:a100,3x8:v100,2x8:t4")
    )
    frames = chart_frames(run(week), week.cluster, week.measure)
    assert set(frames) == {*SERIES, "resources", "allocation", "cdf", "parts"}
    rows = {name: len(frames[name]) for name in ("queue", "utilisation", "states", "cdf")}
    assert rows["utilisation"] > 500
    assert max(rows.values()) <= 2000
    assert len(frames["allocation"]) <= 500


def test_figures_over_time_say_that_they_are_of_one_repeat() -> None:
    assert repeat_note(3, 7) == "Time series show the first of 3 repeats (seed 7)."
    assert repeat_note(1, 7) == ""

from __future__ import annotations

from dataclasses import replace

from sim.cluster import Cluster
from trainyard.results.windowed import strip
from trainyard.runs.frames import MOST_SHOWN, SERIES, chart_frames, first_of
from trainyard.runs.run import run
from trainyard.study.scenario import Scenario, TraceSpec


def test_a_page_with_six_policies_and_three_types_stays_within_its_points(scenario: Scenario) -> None:
    week = replace(scenario, trace=TraceSpec("sample:week"), cluster=Cluster.parse("3x8:a100,3x8:v100,2x8:t4"))
    frames = chart_frames(run(week), week.cluster, week.measure)
    types = len(week.cluster.types)
    assert types == 3
    assert len(frames["utilisation"]) > 500
    # As `charts.timeline` draws them: waiting, busy, fragmented, one line per type, the capacity; and the capacity above all.
    linked = len(frames["queue"]) + (1 + types) * len(frames["utilisation"]) + len(frames["states"]) + len(frames["capacity"])
    per_policy = linked + len(frames["cdf"]) + len(strip(frames["queue"], 172_800.0))
    # Of one policy the jobs that hold its GPUs, under its capacity; and GPUs busy behind the strip.
    allocation = frames["allocation"].drop(columns="t_s").size + len(frames["capacity"]) + 200
    assert MOST_SHOWN * per_policy + len(frames["capacity"]) + allocation <= 32_000
    assert len(frames["allocation"]) <= 500
    # Bands, a lower and an upper line, are drawn for at most three.
    banded = 3 * (per_policy + 2 * (len(frames["queue"]) + len(frames["utilisation"]) + len(frames["states"]))) + len(frames["capacity"]) + allocation
    assert banded <= 32_000
    assert set(frames) == {*SERIES, "resources", "allocation", "cdf", "parts"}


def test_figures_over_time_say_that_they_are_of_one_repeat() -> None:
    assert first_of(3, 7) == "Figures over time show the first of 3 repeats, with seed 7."
    assert first_of(1, 7) == ""

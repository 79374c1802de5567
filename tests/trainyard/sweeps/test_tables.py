from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sim.contract import Spec
from tests.trainyard.sweeps.cases import STUDY
from trainyard.results.compare import relative_change
from trainyard.study.study import Study
from trainyard.study.sweep import Axis, Sweep
from trainyard.sweeps.tables import curves, differences, repeats_are_equal, verdict

LOADS = Axis("trace.load", (0.5, 1.0))
NAN = float("nan")


def table(
    values: dict[tuple[int, str, int], float], failed: tuple[tuple[int, str, int], ...] = ()
) -> pd.DataFrame:
    rows = [
        (point, LOADS.values[point], policy, repeat, "", value)
        for (point, policy, repeat), value in values.items()
    ]
    rows += [
        (point, LOADS.values[point], policy, repeat, "It broke.", NAN)
        for point, policy, repeat in failed
    ]
    return pd.DataFrame(
        rows, columns=["point", "trace.load", "policy", "repeat", "error", "jct_mean_s"]
    )


def test_means_per_point_and_policy_without_band_below_three_repeats() -> None:
    sweep = Sweep(replace(STUDY, repeats=2), (LOADS,))
    runs = table(
        {(0, "A", 0): 10.0, (0, "A", 1): 20.0, (0, "B", 0): 8.0, (1, "A", 0): 40.0},
        failed=((0, "B", 1),),
    )
    found = curves(runs, sweep, "jct_mean_s")
    assert found["trace.load"].tolist() == [0.5, 0.5, 1.0]
    assert found["policy"].tolist() == ["A", "B", "A"]
    assert found["value"].tolist() == [15.0, 8.0, 40.0]
    assert found["low"].isna().all()
    assert found["runs"].tolist() == [2, 1, 1]
    assert found["failed"].tolist() == [0, 1, 0]


def test_differences_are_paired_by_repeat() -> None:
    sweep = Sweep(replace(STUDY, repeats=4), (LOADS,))
    # Luck of a repeat moves both alike: the means vary by a factor of ten, the ratio does not at
    # all.
    runs = table(
        {
            (0, name, turn): luck * (1.0 if name == "A" else 0.8)
            for turn, luck in enumerate((1.0, 3.0, 9.0, 10.0))
            for name in "AB"
        }
    )
    found = differences(runs, sweep, "jct_mean_s", "A")
    assert found["policy"].tolist() == ["B"]
    row = found.iloc[0]
    assert (row["value"], row["low"], row["high"]) == pytest.approx((-0.2, -0.2, -0.2))
    assert curves(runs, sweep, "jct_mean_s")["low"].iloc[0] < 3.5


def test_repeats_that_only_one_of_both_has_do_not_count() -> None:
    sweep = Sweep(replace(STUDY, repeats=3), (LOADS,))
    runs = table(
        {(0, "A", 0): 10.0, (0, "B", 0): 5.0, (0, "A", 1): 10.0, (0, "B", 2): 1.0},
        failed=((0, "B", 1),),
    )
    row = differences(runs, sweep, "jct_mean_s", "A").iloc[0]
    assert (row["value"], row["runs"], row["failed"]) == (-0.5, 1, 1)


def test_bands_hold_the_mean_of_the_population_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    sweep = Sweep(replace(STUDY, repeats=30), (LOADS,))
    inside = 0
    for _ in range(60):
        found = curves(
            table({(0, "A", turn): value for turn, value in enumerate(rng.exponential(10.0, 30))}),
            sweep,
            "jct_mean_s",
        ).iloc[0]
        inside += found["low"] <= 10.0 <= found["high"]
    assert inside >= 50


def test_bands_are_those_of_a_bootstrap_written_otherwise() -> None:
    sweep = Sweep(replace(STUDY, repeats=5), (LOADS,))
    ours, base = (4.0, 7.0, 1.0, 9.0, 5.5), (5.0, 9.0, 1.5, 9.5, 5.0)
    runs = table(
        {
            (0, name, turn): value
            for name, values in {"A": base, "B": ours}.items()
            for turn, value in enumerate(values)
        }
    )
    # All 3,125 ways to draw five repeats out of five, in place of 2,000 at random.
    drawn = [
        ([ours[at] for at in pick], [base[at] for at in pick])
        for pick in itertools.product(range(5), repeat=5)
    ]
    means = sorted(sum(mine) / 5 for mine, _ in drawn)
    ratios = sorted(sum(mine) / sum(other) - 1 for mine, other in drawn)
    ends = [round(share * (len(drawn) - 1)) for share in (0.025, 0.975)]
    curve = curves(runs, sweep, "jct_mean_s").set_index("policy").loc["B"]
    assert [curve["low"], curve["high"]] == pytest.approx([means[at] for at in ends], abs=0.25)
    assert curve["value"] == pytest.approx(26.5 / 5)
    change = differences(runs, sweep, "jct_mean_s", "A").iloc[0]
    assert [change["low"], change["high"]] == pytest.approx([ratios[at] for at in ends], abs=0.02)
    assert change["value"] == pytest.approx(26.5 / 30 - 1)
    # The same function that gives Compare its intervals.
    found = relative_change(base, ours)
    assert (found.value, found.low, found.high) == (
        pytest.approx(change["value"]),
        pytest.approx(change["low"]),
        pytest.approx(change["high"]),
    )


def test_a_policy_that_completes_fewer_jobs_is_ahead_nowhere_nor_is_a_recording() -> None:
    study = Study(STUDY.base, (Spec("fifo"), Spec("sjf"), Spec("recorded")))
    rows = [
        (0, 1.0, "FIFO", 0, "", 9.0, 10.0, 10),
        (0, 1.0, "SJF", 0, "", 1.0, 9.0, 10),
        (0, 1.0, "Recorded schedule", 0, "", 0.5, 10.0, 10),
    ]
    runs = pd.DataFrame(
        rows,
        columns=[
            "point",
            "trace.load",
            "policy",
            "repeat",
            "error",
            "jct_mean_s",
            "completed",
            "jobs",
        ],
    )
    sweep = Sweep(study, (LOADS,))
    found = curves(runs, sweep, "jct_mean_s")
    assert found["completed"].tolist() == [1.0, 0.9, 1.0]
    assert verdict(found, runs, sweep, "jct_mean_s", "mean JCT") == "Nothing to compare yet."
    assert (
        verdict(found.assign(completed=1.0), runs, sweep, "jct_mean_s", "mean JCT")
        == "Lowest mean JCT: SJF at 1 of 1 point."
    )


def test_points_whose_values_read_alike_stay_apart() -> None:
    sweep = Sweep(STUDY, (Axis("trace.load", (1, True)),))
    rows = [(at, value, "A", 0, "", 1.0 + at) for at, value in enumerate((1, True))]
    found = curves(
        pd.DataFrame(
            rows, columns=["point", "trace.load", "policy", "repeat", "error", "jct_mean_s"]
        ),
        sweep,
        "jct_mean_s",
    )
    assert found["value"].tolist() == [1.0, 2.0]


def said(
    runs: pd.DataFrame, sweep: Sweep, metric: str = "jct_mean_s", title: str = "mean JCT"
) -> str:
    return verdict(curves(runs, sweep, metric), runs, sweep, metric, title)


def of_both(ones: tuple[float, ...], others: tuple[float, ...]) -> pd.DataFrame:
    return table(
        {
            (0, name, turn): value
            for name, values in {"A": ones, "B": others}.items()
            for turn, value in enumerate(values)
        }
    )


def test_who_is_ahead_where() -> None:
    sweep = Sweep(STUDY, (LOADS,))
    runs = table({(0, "A", 0): 1.0, (0, "B", 0): 2.0, (1, "A", 0): 3.0, (1, "B", 0): 3.0})
    assert (
        said(runs, sweep)
        == "Lowest mean JCT: A at 1 of 2 points, no clear difference between the first two at 1."
    )
    higher = runs.rename(columns={"jct_mean_s": "utilisation"})
    assert (
        said(higher, sweep, "utilisation", "GPUs busy")
        == "Highest GPUs busy: B at 1 of 2 points, no clear difference between the first two at 1."
    )
    assert said(runs.iloc[:0], sweep) == "Nothing to compare yet."


def test_a_difference_that_is_the_same_in_every_repeat_is_clear_though_the_bands_overlap() -> None:
    sweep = Sweep(replace(STUDY, repeats=5), (LOADS,))
    luck = (10.0, 30.0, 90.0, 100.0, 20.0)
    runs = of_both(tuple(0.9 * value for value in luck), luck)
    bands = curves(runs, sweep, "jct_mean_s").set_index("policy")
    assert bands.loc["A", "high"] > bands.loc["B", "low"]
    assert said(runs, sweep) == "Lowest mean JCT: A at 1 of 1 point."


def test_a_difference_that_changes_its_sign_from_repeat_to_repeat_is_not_clear() -> None:
    sweep = Sweep(replace(STUDY, repeats=4), (LOADS,))
    assert "no clear difference" in said(of_both((1.0, 9.0, 5.0, 5.0), (2.0, 7.0, 9.0, 4.0)), sweep)


def test_where_the_second_is_nothing_the_difference_still_counts() -> None:
    sweep = Sweep(replace(STUDY, repeats=3), (LOADS,))
    runs = of_both((0.0, 0.0, 0.0), (0.2, 0.3, 0.4)).rename(columns={"jct_mean_s": "utilisation"})
    assert said(runs, sweep, "utilisation", "GPUs busy") == "Highest GPUs busy: B at 1 of 1 point."


def test_policies_without_a_repeat_in_common_are_not_told_apart() -> None:
    sweep = Sweep(replace(STUDY, repeats=2), (LOADS,))
    assert "no clear difference" in said(table({(0, "A", 0): 1.0, (0, "B", 1): 2.0}), sweep)


def test_nothing_yet() -> None:
    sweep = Sweep(STUDY, (LOADS,))
    empty = table({})
    assert curves(empty, sweep, "jct_mean_s").empty
    assert differences(empty, sweep, "jct_mean_s", "A").empty


def test_repeats_that_say_nothing_of_chance_are_known() -> None:
    same = {(0, "A", 0): 10.0, (0, "A", 1): 10.0, (0, "B", 0): 8.0, (0, "B", 1): 8.0}
    assert repeats_are_equal(table(same, failed=((1, "A", 0),)), "jct_mean_s")
    assert not repeats_are_equal(table(same | {(0, "B", 1): 8.5}), "jct_mean_s")
    assert not repeats_are_equal(table({(0, "A", 0): 10.0, (0, "B", 0): 10.0}), "jct_mean_s")
    assert not repeats_are_equal(table({}), "queue_p95_s")

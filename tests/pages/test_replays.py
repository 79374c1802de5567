from __future__ import annotations

from trainyard.labs.replays.reading import load
from trainyard.labs.replays.report import ClaimRow, Pooled
from trainyard.labs.replays.types import ReplayMeasure
from trainyard.views import replays
from ui.learning import replay_report


def cells_of(name: str, text: str, value: float) -> str:
    replay = load(name)
    claim = next(claim for claim in replay.claims if claim.text == text)
    return "".join(
        replay_report._claim_cells(
            ClaimRow(claim, Pooled(value, value - 0.1, value + 0.1, 20), 1.0), replay.label(claim)
        )
    )


def test_a_row_says_where_the_claim_is_from_and_where_the_band_is() -> None:
    row = cells_of("hadare-cru", "utilisation_to_end hadare/hadar at jobs=5", 1.4)
    assert "at 5 jobs, AWS nodes · read in the abstract · 20 seeds" in row
    assert "expected range: results of our trial program" in row
    assert "± 20 %" in cells_of("hadare-cru", "makespan_s hadare/hadar at jobs=5", 0.8).replace(
        "\u00a0", " "
    )


def test_a_change_along_an_axis_is_told_as_a_ratio_also_of_a_plain_value() -> None:
    row = cells_of("hadare-cru", "makespan_s large from slot=90 to slot=720", 0.72).replace(
        "\u00a0", " "
    )
    assert "from 90 to 720 s (length of a round), with 3 jobs on AWS nodes" in row
    assert "× 0.72" in row
    assert "below × 1.00" in row
    assert "above × 1.00" in cells_of(
        "hadare-cru", "makespan_s hadare/hadar from jobs=1 to jobs=5", 1.9
    ).replace("\u00a0", " ")


def test_bounds_and_changes_are_no_claims_of_a_curve() -> None:
    replay = load("hadare-cru")
    axis = replay.axis("slot")
    drawn = {measure.label: replays._claim(replay, axis, measure) for measure in axis.measures}
    assert set(drawn.values()) == {None}
    ratio = next(
        measure
        for measure in replay.axis("jobs").measures
        if measure.text == "makespan_s hadare/hadar"
    )
    claim = replays._claim(replay, replay.axis("jobs"), ratio)
    assert claim is not None
    assert (claim.at, claim.value) == (1, 0.5)


def test_differences_of_shares_are_points() -> None:
    assert (
        replays.number(ReplayMeasure("completion_rate", "a", "b", "difference"), 0.162)
        == "+16.2 points"
    )
    assert replays.number(ReplayMeasure("completion_rate", "a", kind="value"), 0.162).endswith("%")


def test_a_ratio_near_1_is_told_in_per_cent_too() -> None:
    ratio = ReplayMeasure("jct_mean_s", "a", "b", "ratio")
    said = [replay_report._percent_text(ratio, value) for value in (0.8, 1.25, 1.5, 3.0)]
    assert said == [" (−20\u202f%)", " (+25\u202f%)", "", ""]
    assert (
        replay_report._percent_text(ReplayMeasure("jct_mean_s", "a", "b", "difference"), 0.8) == ""
    )

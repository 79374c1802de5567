from __future__ import annotations

import math

import pandas as pd
import pytest

from trainyard.views import ledger
from trainyard.views.ledger import ALL, LedgerCell, LedgerView, Row

NAN = float("nan")


def table(**changes: float) -> pd.DataFrame:
    """A against B, with a change of each metric and no interval."""
    rows = [
        {
            "label": label,
            "metric": name,
            "value": 100.0 * (1 + (change if label == "B" else 0.0)),
            "change": change if label == "B" else NAN,
            "low": NAN,
            "high": NAN,
            "verdict": ("better" if change < 0 else "worse") if label == "B" else "",
        }
        for name, change in changes.items()
        for label in "AB"
    ]
    return pd.DataFrame(rows)


def cell(frame: pd.DataFrame, name: str, title: str = "B") -> LedgerCell:
    return ledger.cell(ledger.by_place(frame), title, ALL[name], "A")


@pytest.mark.parametrize(
    ("change", "told"), [(-0.47, "−47\u202f%"), (0.02, "+2.0\u202f%"), (-0.004, "≈"), (0.0, "≈")]
)
def test_a_change_below_one_per_cent_is_about_the_same(change: float, told: str) -> None:
    assert cell(table(jct_mean_s=change), "jct_mean_s").change == told
    assert cell(table(jct_mean_s=change), "jct_mean_s", "A").change == ""


def test_within_its_interval_nothing_differs() -> None:
    frame = table(jct_mean_s=-0.2)
    frame.loc[frame["label"] == "B", ["low", "high"]] = (-0.5, 0.1)
    found = cell(frame, "jct_mean_s")
    assert found.change == "≈"
    assert found.help == "95 % of resamples: −50\u202f% to +10\u202f%"


def test_shares_differ_by_points() -> None:
    frame = table(utilisation=-0.02)
    frame["value"] = [0.82, 0.80]
    found = cell(frame, "utilisation")
    assert (found.text, found.change) == ("80 %", "−2 pt")


@pytest.mark.parametrize(
    ("base", "value", "text", "change"),
    [
        (0.8151, 0.7849, "78 %", "−4 pt"),  # 3.0 points, read as 82 % and 78 %
        (0.8249, 0.7751, "78 %", "−4 pt"),  # 5.0 points, read as 82 % and 78 %
        (0.8051, 0.8149, "81 %", "≈"),  # 0.98 points, read as 81 % and 81 %
        (0.8149, 0.8151, "82 %", "+1 pt"),
    ],
)
def test_points_are_the_difference_of_what_is_read(
    base: float, value: float, text: str, change: str
) -> None:
    frame = table(utilisation=value / base - 1)
    frame["value"] = [base, value]
    found = cell(frame, "utilisation")
    assert (found.text, found.change) == (text, change)


def test_where_nothing_may_be_told_there_is_the_value_alone() -> None:
    frame = table(jct_mean_s=-0.47).assign(change=NAN)
    assert cell(frame, "jct_mean_s") == LedgerCell("53 s", value=53.0)
    assert cell(frame, "makespan_s").text == "–"


def test_columns_are_those_known_and_the_goal() -> None:
    frame = table(jct_mean_s=-0.4, makespan_s=0.1, preemptions=2.0)
    assert [one.name for one in ledger.columns(frame)] == ["jct_mean_s"]
    names = [one.name for one in ledger.columns(frame, "makespan_s")]
    assert names == ["makespan_s", "jct_mean_s"]


def test_rows_are_sorted_by_a_column_and_those_without_figures_stay_last() -> None:
    rows = [
        Row(title, "#000000", cells)
        for title, cells in (
            ("b", [LedgerCell("3", value=3.0)]),
            ("a", [LedgerCell("1", value=1.0)]),
            ("none", []),
            ("c", [LedgerCell("–", value=math.nan)]),
        )
    ]
    data = LedgerView([ALL["jct_mean_s"]], rows)

    def order(sort: tuple[int, bool] | None) -> list[str]:
        made = LedgerView(data.columns, data.rows, sort=sort).to_json()
        return [row["title"] for row in made["rows"]]

    assert order(None) == ["b", "a", "none", "c"]
    assert order((0, True)) == ["a", "b", "none", "c"]
    assert order((0, False)) == ["b", "a", "none", "c"]
    assert order((-1, True)) == ["a", "b", "c", "none"]
    assert order((-1, False)) == ["none", "c", "b", "a"]
    # The titles are no column of figures.
    assert [
        LedgerView(data.columns, data.rows, sort=sort).to_json()["columns"][0].get("sorted")
        for sort in ((0, True), (0, False), (-1, True))
    ] == ["up", "down", None]


def test_names_from_outside_are_cut_and_made_visible() -> None:
    long = "<img src=x onerror=alert(1)>" + "x" * 300
    row = LedgerView([], [Row(long, "#000000", note="a\nb")]).to_json()["rows"][0]
    assert row["title"].startswith("<img src=x")
    assert len(row["title"]) <= 200
    assert row["title"].endswith("…")
    assert row["note"] == "a b"

from __future__ import annotations

import re

import pandas as pd

from trainyard.runs.frames import policies_to_draw
from trainyard.views import metric_table
from trainyard.views.charts import policy_style

STYLE = metric_table.TableStyle(policy_style(["A", "B"], "A"), "A")
NAN = float("nan")


def row(
    label: str, metric: str, value: float, change: float = NAN, low: float = NAN, high: float = NAN
) -> dict[str, object]:
    verdict = "better" if change < 0 else "worse" if change > 0 else ""
    return {
        "label": label,
        "metric": metric,
        "value": value,
        "change": change,
        "low": low,
        "high": high,
        "verdict": verdict,
        "best": False,
        "barred": label == "history",
    }


def text(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def made(*rows: dict[str, object]) -> str:
    return metric_table.full_table(pd.DataFrame(rows), STYLE)


def test_an_interval_is_half_its_width_with_both_ends_in_the_title() -> None:
    html = made(row("A", "jct_mean_s", 36_000), row("B", "jct_mean_s", 23_400, -0.35, -0.38, -0.32))
    assert "▼ −35 % ± 3.0 better" in text(html)
    assert "95 % of resamples: −38\u202f% to −32\u202f%" in html
    wide = made(row("A", "jct_mean_s", 36_000), row("B", "jct_mean_s", 23_400, -0.35, -0.6, -0.1))
    assert "−35 % ± 25 better" in text(wide)


def test_large_changes_are_told_as_factors_with_intervals_in_times() -> None:
    html = made(row("A", "jct_mean_s", 60), row("B", "jct_mean_s", 5400, 89, 88, 90.4))
    assert "▲ 90 times ± 1.2 worse" in text(html)
    assert "95 % of resamples: 89 times to 91 times" in html


def test_the_note_says_what_is_compared_and_who_is_left_out_of_it() -> None:
    two = [row("A", "jct_mean_s", 60.0), row("B", "jct_mean_s", 30.0, -0.5)]
    assert text(made(*two)).endswith(
        "Differences against A, over the jobs completed under both. Underlined: the best value."
    )
    assert text(made(*two, row("history", "jct_mean_s", 9.0))).endswith(
        "the best value; history not counted."
    )
    assert "Underlined" not in text(made(two[0]))


def test_without_repeats_there_is_no_interval() -> None:
    assert "±" not in text(
        made(row("A", "jct_mean_s", 36_000), row("B", "jct_mean_s", 23_400, -0.35))
    )


def test_no_interval_stands_beside_rounding_errors() -> None:
    assert "±0 %" in (
        told := text(
            made(row("A", "jct_mean_s", 60), row("B", "jct_mean_s", 60, 1e-9, -1e-9, 2e-9))
        )
    )
    assert "± 0.0" not in told


def test_charts_draw_the_first_policies_and_always_the_baseline() -> None:
    titles = [str(at) for at in range(8)]
    assert policies_to_draw(titles, "0") == (
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
    )
    assert policies_to_draw(titles, "7") == (
        "0",
        "1",
        "2",
        "3",
        "4",
        "7",
    )
    # While the baseline is not complete, and where only the last ones are.
    assert policies_to_draw(titles, "") == (
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
    )
    assert policies_to_draw(titles[6:], "") == ("6", "7")


def test_an_interval_that_begins_at_no_effect_is_shown() -> None:
    html = made(row("A", "jct_mean_s", 36_000), row("B", "jct_mean_s", 32_400, -0.1, -0.2, 0.0))
    assert "± 10 " in text(html)

from __future__ import annotations

import pandas as pd

from trainyard.views import charts


def test_bars_lie_where_they_are_told_to_and_each_job_has_its_letter_once() -> None:
    bars = pd.DataFrame(
        {
            "job": ["A", "A", "<b>"],
            "lane": [0.0, 4.0, 1.0],
            "lanes": [1.0, 2.0, 3.0],
            "t0_s": [0.0, 3600, 0],
            "t1_s": [3600.0, 7200, 1800],
            "what": "1 <GPU>",
        }
    )
    jobs = pd.DataFrame({"job": ["A", "<b>"], "submit_s": [0.0, 600.0]})
    figure = charts.example(bars, jobs, (("4 fast", 4.0), ("4 slow", 4.0)), 14_400.0)
    first, second = figure.data
    assert [list(first.base), list(first.x), list(first.y)] == [[0, 3600], [3600, 3600], [0.5, 5.0]]
    assert list(first.text) == ["", "A"]
    assert (first.name, second.name) == ("A", "&lt;b&gt;")
    assert first.marker.color != second.marker.color
    assert list(first.customdata) == [
        "1 &lt;GPU&gt;, from day 1, 00:00 to 01:00",
        "1 &lt;GPU&gt;, from day 1, 01:00 to 02:00",
    ]
    assert list(figure.layout.yaxis.tickvals) == [2.0, 6.0]
    marks = {note.text: note.x for note in figure.layout.annotations}
    assert marks == {"A<br>▾": 0.0, "&lt;b&gt;<br>▾": 600}


def test_a_job_that_never_ran_has_no_bar() -> None:
    bars = pd.DataFrame(columns=["job", "lane", "lanes", "t0_s", "t1_s", "what"])
    figure = charts.example(
        bars, pd.DataFrame({"job": ["A"], "submit_s": [0.0]}), (("4 fast", 4.0),), 60.0
    )
    assert len(figure.data[0].x) == 0

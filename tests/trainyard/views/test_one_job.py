from __future__ import annotations

from math import nan

import pytest

from trainyard.views.one_job import JobUnder, _sentence


@pytest.mark.parametrize(
    ("finishes_s", "expected"),
    [
        ((7200.0, 3600.0), "Completed 1 h later under FIFO"),
        ((3600.0, 7200.0), "Completed 1 h earlier under FIFO"),
        # Less than a minute apart is the same time.
        ((3600.0, 3659.0), "Completed at the same time under FIFO and SRTF"),
        ((3660.0, 3600.0), "Completed 1 min later under FIFO"),
        ((nan, 3600.0), "Refused by FIFO; Completed under SRTF"),
        ((3600.0,), "Completed under FIFO"),
    ],
)
def test_the_sentence_compares_the_first_policy_with_the_second(
    finishes_s: tuple[float, ...], expected: str
) -> None:
    under = [
        JobUnder(title, (), "refused", finish_s, 0.0, 0.0, 0.0, 0.0, 0)
        for title, finish_s in zip(("FIFO", "SRTF"), finishes_s, strict=False)
    ]
    assert _sentence(under) == expected

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ParameterError
from trainyard.formatting import (
    MISSING,
    RunClock,
    change,
    duration,
    gpu_type,
    run_time,
    signed_duration,
)

EPOCH = "2023-12-31T18:00:00+08:00"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.004, "0.004 s"),
        (0.25, "0.25 s"),
        (45, "45 s"),
        (45.4, "45 s"),
        (89.4, "89 s"),
        (91, "1.5 min"),
        (27 * 60, "27 min"),
        (89.6 * 60, "90 min"),
        (90 * 60, "1.5 h"),
        (3.4 * 3600, "3.4 h"),
        (28.9 * 3600, "28.9 h"),
        (47.96 * 3600, "48.0 h"),
        (60 * 3600, "2.5 days"),
        (60, "1 min"),
        (3600, "1 h"),
        (86_400, "1 day"),
        (86_400 * 4000, "4,000 days"),
        (3601, "60 min"),
        (600, "10 min"),
        (1e6, "11.6 days"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_instants() -> None:
    assert run_time(5 * 86_400 + 16_200) == "day 6, 04:30"
    assert run_time(5 * 86_400 + 37_800, EPOCH) == "Sat 6 Jan, 04:30"
    assert RunClock(seconds=True).format(3661) == "day 1, 01:01:01"
    assert RunClock().span(5 * 86_400 + 16_200, 5 * 86_400 + 21_600) == "day 6, 04:30–06:00"
    assert RunClock().span(0, 86_400) == "day 1, 00:00–day 2, 00:00"


@pytest.mark.parametrize("epoch", ["", EPOCH])
@given(minute=st.integers(0, 300 * 1440))
def test_what_is_written_can_be_read(epoch: str, minute: int) -> None:
    clock = RunClock(epoch)
    assert clock.read(clock.format(60.0 * minute)) == 60.0 * minute
    assert clock.read(f"  {clock.format(60.0 * minute).upper()} ") == 60.0 * minute


def test_short_forms_are_read() -> None:
    assert RunClock().read("day 6") == RunClock().read("6") == 5 * 86_400
    assert RunClock().read("6 4:30") == 5 * 86_400 + 16_200
    assert RunClock().read("day 1,001, 00:00:05") == 1000 * 86_400 + 5
    assert RunClock(EPOCH).read("6 Jan, 04:30") == 5 * 86_400 + 37_800
    assert RunClock(EPOCH).read("29 Feb") == 59 * 86_400 + 21_600


@pytest.mark.parametrize("wrong", ["", "day", "day 0", "day 6, 24:00", "6, 4:60", "6 Foo", "x"])
@pytest.mark.parametrize("epoch", ["", EPOCH])
def test_other_texts_are_refused_with_an_example(wrong: str, epoch: str) -> None:
    with pytest.raises(ParameterError, match=r"04:30|22:30"):
        RunClock(epoch).read(wrong)


def test_a_day_that_no_year_has_is_refused() -> None:
    with pytest.raises(ParameterError):
        RunClock(EPOCH).read("31 Feb")


def test_changes_have_a_real_minus_and_a_narrow_space() -> None:
    assert change(-0.47) == "−47\u202f%"
    differences = [signed_duration(seconds) for seconds in (-90.0, 0.0, 45.0, math.nan)]
    assert differences == ["−1.5 min", "+0 s", "+45 s", MISSING]


@pytest.mark.parametrize(
    ("name", "said"),
    [("a100", "A100"), ("rtx3090", "RTX3090"), ("a100-80gb", "A100-80GB"), ("big gpu", "big gpu")],
)
def test_a_gpu_model_is_written_in_capitals(name: str, said: str) -> None:
    assert gpu_type(name) == said

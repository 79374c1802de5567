from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from sim.errors import ParameterError
from sim.metrics import bins_for, integral, reduce_frame, reduce_steps
from sim.metrics.steps import MAX_POINTS, accumulate, merge_intervals

T = np.array([0.0, 1, 3, 4, 8])
V = np.array([2.0, 4, 0, 1, 0])  # 2 on 0..1, 4 on 1..3, 0 on 3..4, 1 on 4..8, then 0


def test_few_steps_come_back_as_they_are() -> None:
    steps = reduce_steps(T, V, 0, 10)
    assert steps.bin_s == 0
    assert steps.t_s.tolist() == [0, 1, 3, 4, 8, 10]
    assert steps.mean.tolist() == [2, 4, 0, 1, 0, 0]
    assert (steps.low.tolist(), steps.high.tolist()) == (steps.mean.tolist(), steps.mean.tolist())


def test_bins_worked_out_by_hand() -> None:
    steps = reduce_steps(T, V, 0, 8, bins=2)
    assert steps.bin_s == 4
    assert steps.t_s.tolist() == [0, 4, 8]
    assert steps.mean.tolist() == [(2 + 8 + 0) / 4, 1, 1]
    # The step at 4 belongs to the second bin, so the first one never sees the 1; the closing point
    # repeats the last bin.
    assert steps.low.tolist() == [0, 1, 1]
    assert steps.high.tolist() == [4, 1, 1]


def test_window_inside_the_series() -> None:
    steps = reduce_steps(T, V, 2, 5)
    assert steps.t_s.tolist() == [2, 3, 4, 5]
    assert steps.mean.tolist() == [4, 0, 1, 1]
    binned = reduce_steps(T, V, 2, 5, bins=2)
    # 2..3.5: 4 x 1 + 0 x 0.5; 3.5..5: 0 x 0.5 + 1 x 1.
    assert_allclose(binned.mean, [4 / 1.5, 1 / 1.5, 1 / 1.5])
    assert binned.low.tolist() == [0, 0, 0]
    assert binned.high.tolist() == [4, 1, 1]


def test_zero_before_the_first_point() -> None:
    assert reduce_steps(np.array([5.0]), np.array([3.0]), 0, 10).mean.tolist() == [0, 3, 3]
    assert reduce_steps(np.zeros(0), np.zeros(0), 0, 10).mean.tolist() == [0, 0]
    assert integral(np.zeros(0), np.zeros(0), 0, 10) == 0
    assert integral(np.array([5.0]), np.array([3.0]), 0, 10) == 15


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(ParameterError, match="ends after it begins"):
        reduce_steps(T, V, 5, 5)
    with pytest.raises(ParameterError, match="in 0 bins"):
        reduce_steps(T, V, 0, 5, bins=0)


@given(
    times=st.lists(st.floats(0, 1000), min_size=1, max_size=80, unique=True),
    data=st.data(),
    bins=st.integers(1, 30),
    start=st.floats(-10, 900),
    span=st.floats(0.5, 500),
)
def test_reduction_keeps_the_integral_and_the_band(
    times: list[float], data: st.DataObject, bins: int, start: float, span: float
) -> None:
    t = np.sort(np.array(times))
    v = np.array(
        data.draw(st.lists(st.integers(0, 50), min_size=len(t), max_size=len(t))), np.float64
    )
    steps = reduce_steps(t, v, start, start + span, bins)
    assert len(steps.t_s) <= bins + 1
    assert (steps.t_s[0], steps.t_s[-1]) == (start, start + span)
    assert float(np.dot(steps.mean[:-1], np.diff(steps.t_s))) == pytest.approx(
        integral(t, v, start, start + span), rel=1e-9, abs=1e-7
    )
    assert (steps.low <= steps.mean).all()
    assert (steps.mean <= steps.high).all()
    # Against the definition: all values taken in the bin, the one carried into it included.
    for low, high, begin, end in zip(
        steps.low, steps.high, steps.t_s[:-1], steps.t_s[1:], strict=False
    ):
        taken = [*v[(t > begin) & (t < end)], v[t <= begin][-1] if (t <= begin).any() else 0.0]
        assert (low, high) == (min(taken), max(taken))


def test_frames_are_reduced_column_by_column() -> None:
    frame = pd.DataFrame({"t_s": T, "a": V, "b": V * 2})
    found = reduce_frame(frame, 0, 8, bins=2)
    assert list(found) == ["t_s", "a", "a_low", "a_high", "b", "b_low", "b_high"]
    assert found["b"].tolist() == [5, 2, 2]
    assert found["a_high"].tolist() == [4, 1, 1]


def test_bins_share_a_budget() -> None:
    assert bins_for(1) == MAX_POINTS - 1
    assert bins_for(48, 24_000) == 499
    assert 48 * (bins_for(48, 24_000) + 1) == 24_000
    assert bins_for(100_000) == 100


def test_changes_of_one_instant_are_one() -> None:
    t, (a, b) = accumulate(np.array([3.0, 1, 3, 1, 2]), [np.array([5.0, 1, -5, 1, 0]), np.ones(5)])
    assert t.tolist() == [1, 2, 3]
    assert a.tolist() == [2, 2, 2]  # kept, because the other column does change
    assert b.tolist() == [2, 3, 5]
    assert accumulate(np.array([1.0, 2, 2, 3]), [np.array([1.0, 1, -1, 1])])[0].tolist() == [1, 3]


def test_merging_keeps_owners_apart() -> None:
    owner, t0, t1 = merge_intervals(
        np.array([1, 0, 1, 1, 0]), np.array([5.0, 0, 0, 2, 9]), np.array([6.0, 4, 5.5, 3, 9])
    )
    assert owner.tolist() == [0, 1, 1]
    assert t0.tolist() == [0, 0, 5.5]
    assert t1.tolist() == [4, 5.5, 6]

"""What the slider may change, and how far."""

from __future__ import annotations

import pytest

from sim.errors import TrainyardError
from trainyard.sweeps.axes import Lever
from trainyard.traces import new_study
from ui.what_if import slider
from ui.what_if.slider import Setting


def nodes(count: int, groups: int = 1) -> Setting:
    lever = Lever("cluster.groups.0.count", "A100 nodes", "", float(count), 0.0, 0.0, whole=True)
    return slider._node_setting(lever, groups)


def test_nodes_begin_where_a_run_is_possible() -> None:
    assert (nodes(4).low, nodes(4).high, nodes(4).step) == (1, 8, 1)
    assert nodes(4, groups=2).low == 0
    assert (nodes(1).low, nodes(1).high) == (1, 8)


@pytest.mark.parametrize("count", [1, 3, 64, 65, 133, 512, 5000, 70_000])
def test_the_present_number_is_on_a_step_of_the_slider(count: int) -> None:
    made = nodes(count)
    assert made.low <= count <= made.high
    assert (count - made.low) % made.step == 0
    assert made.low >= 1
    assert (made.high - made.low) / made.step <= 2 * 128


def test_a_load_off_the_usual_range_has_one_of_its_own() -> None:
    made = Setting("trace.load", "Load", 9.0, 0.25, 2.0, 0.05)
    found = slider._fit_range(made)
    assert (found.low, found.high) == (4.5, 18.0)
    # 1 and 0.99 are 15 steps above the lower end, 1.03 is between two steps.
    steps = [
        slider._fit_range(Setting("trace.load", "Load", now, low, 2.0, 0.05)).step
        for now, low in ((1.0, 0.25), (0.99, 0.24), (1.03, 0.25))
    ]
    assert steps == pytest.approx([0.05, 0.05, 0.01])


def test_a_value_makes_a_scenario_with_the_same_colours_and_names() -> None:
    before = new_study.sample_study()
    made = slider.with_value(before, "cluster.groups.0.count", 6.0)
    assert made.base.cluster.groups[0].count == 6
    assert (made.slots, made.names, made.allocators) == (
        before.slots,
        before.names,
        before.allocators,
    )
    assert slider.with_value(before, "trace.load", 0.85).base.trace.load == 0.85
    assert slider.with_value(before, "cluster.groups.0.count", 4.0).matches(before)
    with pytest.raises(TrainyardError):
        slider.with_value(before, "cluster.groups.7.count", 4.0)

"""Settings of the slider: their ranges, and the scenario at a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.results import preview
from trainyard.study.settings import with_settings
from trainyard.study.study import Study
from trainyard.sweeps import axes
from ui import server

LOAD: Final = "trace.load"
_NODES: Final = "cluster.groups."
_MIN_STEPS: Final = 128
_RANGES: Final = "what_if/ranges"
_LOADS: Final = (0.25, 2.0, 0.05)


@dataclass(frozen=True)
class Setting:
    """A setting of the slider.

    Parameters
    ----------
    path : str
        As `trainyard.study.sweep.Axis.path`.
    title : str
        Label for the user.
    now, low, high, step : float
        Current value, range and step of the slider.
    before : str
        Prefix of the number.
    digits : int
        Decimals of the number.
    """

    path: str
    title: str
    now: float
    low: float
    high: float
    step: float
    before: str = ""
    digits: int = 0


def settings(study: Study) -> list[Setting]:
    """Return the slider's settings: node counts, then load; empty if no policy is fast.

    Raises
    ------
    TrainyardError
        If its trace cannot be loaded.
    """
    # Whether a policy is fast does not depend on the value of a setting.
    if not _fast_policies(study.canonical(), study):
        return []
    settings = []
    for lever in axes.levers(study, server.store()):
        if lever.path.startswith(_NODES) and lever.path.endswith(".count"):
            settings.append(_node_setting(lever, len(study.base.cluster.groups)))
        elif lever.path == LOAD:
            low, high, step = _LOADS
            load_setting = Setting(LOAD, "Load", lever.now, low, high, step, "× ", digits=2)
            settings.append(_fit_range(load_setting))
    settings.sort(key=lambda setting: not setting.path.startswith(_NODES))
    return [_keep_range(study, setting) for setting in settings]


@st.cache_data(max_entries=64, show_spinner=False)
def _fast_policies(cache_key: str, _study: Study) -> frozenset[str]:
    """Return the titles of policies fast enough for a preview, cached by the study."""
    del cache_key
    return preview.fast_policies(_study, server.store())


def _node_setting(lever: axes.Lever, groups: int) -> Setting:
    """Return the setting for one row's nodes: steps up to twice the current number.

    `groups` = number of rows; the only row keeps at least one node.
    """
    current = round(lever.now)
    sizes = (1, 2, 5, 10, 20, 50, 100, 1000)
    step = next((size for size in sizes if 2 * current <= _MIN_STEPS * size), 10_000)
    min_nodes = 0 if groups > 1 else 1
    low = current - (current - min_nodes) // step * step
    return Setting(
        lever.path, lever.title, current, low, max(current + current // step * step, 8), step
    )


def _fit_range(setting: Setting) -> Setting:
    """Return a setting with its current value on a step; widen the range to include it."""
    if setting.low <= setting.now <= setting.high:
        remainder = (setting.now - setting.low) % setting.step
        return replace(
            setting,
            step=setting.step
            if min(remainder, setting.step - remainder) < 1e-9
            else setting.step / 5,
        )
    step = setting.now / 20
    return replace(setting, low=setting.now / 2, high=2 * setting.now, step=step)


def _keep_range(study: Study, setting: Setting) -> Setting:
    """Return a setting with its earlier range if that has its value as a step.

    Otherwise the new range is kept for later, so that the slider does not jump.
    """
    ranges: dict[Any, Setting] = st.session_state.setdefault(_RANGES, {})
    key = study.base.trace.source, setting.path, len(study.base.cluster.groups)
    earlier = ranges.get(key)
    if earlier is not None and earlier.low <= setting.now <= earlier.high:
        remainder = (setting.now - earlier.low) % earlier.step
        if min(remainder, earlier.step - remainder) < 1e-6:
            return replace(earlier, now=setting.now, title=setting.title)
    ranges[key] = setting
    return setting


def with_value(study: Study, path: str, value: float) -> Study:
    """Return the study with the setting `path` (node count or load) set to a value.

    Raises
    ------
    TrainyardError
        If the study cannot have this value.
    """
    text = f"{value:g}" if path == LOAD else str(round(value))
    return Study.from_json(with_settings(study.to_json(), [f"{path}={text}"], "The slider:"))


def settings_or_empty(study: Study) -> list[Setting]:
    """Return the slider's settings, or an empty list if the trace cannot be loaded."""
    try:
        return settings(study)
    except TrainyardError:
        return []  # the page reports why its trace cannot be loaded

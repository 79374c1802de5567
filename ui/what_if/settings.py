"""What the slider may change, how far, and the scenario that a value of it makes."""

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
_FEWEST_STEPS: Final = 128
_RANGES: Final = "what_if/ranges"
_LOADS: Final = (0.25, 2.0, 0.05)


@dataclass(frozen=True)
class Setting:
    """One setting of the slider.

    Parameters
    ----------
    path : str
        As `trainyard.study.sweep.Axis.path`.
    title : str
        What the user reads.
    now, low, high, step : float
        What it is, and where the slider may stand.
    before : str
        What stands before its number.
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
    """Return what the slider may change of a study; nothing if no policy of it can follow.

    Raises
    ------
    TrainyardError
        If its trace cannot be loaded.
    """
    # The same rules hold for all values of one setting, so it is the kind of scenario that counts.
    if not _fast(study.canonical(), study):
        return []
    found = []
    for lever in axes.levers(study, server.store()):
        if lever.path.startswith(_NODES) and lever.path.endswith(".count"):
            found.append(_nodes(lever, len(study.base.cluster.groups)))
        elif lever.path == LOAD:
            low, high, step = _LOADS
            made = Setting(LOAD, "Load", lever.now, low, high, step, "× ", digits=2)
            found.append(_reaching(made))
    found.sort(key=lambda one: not one.path.startswith(_NODES))
    return [_stable(study, one) for one in found]


@st.cache_data(max_entries=64, show_spinner=False)
def _fast(mark: str, _study: Study) -> frozenset[str]:
    del mark
    return preview.fast_policies(_study, server.store())


def _nodes(lever: axes.Lever, groups: int) -> Setting:
    now = round(lever.now)
    sizes = (1, 2, 5, 10, 20, 50, 100, 1000)
    step = next((size for size in sizes if 2 * now <= _FEWEST_STEPS * size), 10_000)
    least = 0 if groups > 1 else 1
    low = now - (now - least) // step * step
    return Setting(lever.path, lever.title, now, low, max(now + now // step * step, 8), step)


def _reaching(made: Setting) -> Setting:
    """Return a setting whose range reaches its value and has it on a step."""
    if made.low <= made.now <= made.high:
        off = (made.now - made.low) % made.step
        return replace(made, step=made.step if min(off, made.step - off) < 1e-9 else made.step / 5)
    step = made.now / 20
    return replace(made, low=made.now / 2, high=2 * made.now, step=step)


def _stable(study: Study, made: Setting) -> Setting:
    """Return a setting with the range that it had before, as long as its value lies in it: a slider
    must not move on its own when it comes to rest.
    """
    ranges: dict[Any, Setting] = st.session_state.setdefault(_RANGES, {})
    key = study.base.trace.source, made.path, len(study.base.cluster.groups)
    kept = ranges.get(key)
    if kept is not None and kept.low <= made.now <= kept.high:
        off = (made.now - kept.low) % kept.step
        if min(off, kept.step - off) < 1e-6:
            return replace(kept, now=made.now, title=made.title)
    ranges[key] = made
    return made


def changed(study: Study, path: str, value: float) -> Study:
    """Return the study with a value of a setting.

    Raises
    ------
    TrainyardError
        If it cannot have it.
    """
    text = f"{value:g}" if path == LOAD else str(round(value))
    return Study.from_json(with_settings(study.to_json(), [f"{path}={text}"], "The slider:"))


def offered(study: Study) -> list[Setting]:
    """Return the same as `settings`, and nothing where that cannot be told."""
    try:
        return settings(study)
    except TrainyardError:
        return []  # the page says why its trace cannot be loaded

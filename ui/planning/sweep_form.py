"""The form of a sweep: one or two settings, as ranges or lists, in a grid or at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import streamlit as st

from sim.errors import ParameterError
from trainyard.study.study import Study
from trainyard.study.sweep import Axis, Sweep, axis_from_text
from trainyard.sweeps.axes import Lever, levers, with_needed_estimator
from ui import server, state, words

_REQUEST: Final = "sweep_asked"
_EDITION: Final = "sweep_edition"
_STEPS: Final = 5
_MAX_STEPS: Final = 1000
_MAX_REPEATS: Final = 50
_CELL_PX: Final = 135
_NOTHING: Final = ""
_RANGE: Final = "Range"
_LIST: Final = "List"
_FIRST_STEPS: Final = 9


@dataclass(frozen=True)
class VariedSetting:
    """A setting that varies.

    Parameters
    ----------
    path : str
        As `Axis.path`.
    is_list : bool
        Whether the values come from `text` instead of the range.
    low, high, steps : float, float, int
        The range.
    log : bool
        Whether the steps are equal ratios.
    text : str
        Values, separated by commas.
    """

    path: str
    is_list: bool = False
    low: float = 0.0
    high: float = 1.0
    steps: int = _STEPS
    log: bool = False
    text: str = ""

    def axis(self) -> Axis:
        """Return the sweep's axis: the values of the list, or steps over the range.

        Raises
        ------
        ParameterError
            If the setting has no values.
        """
        if self.is_list:
            return (
                axis_from_text(f"{self.path}={self.text}") if self.text.strip() else Axis(self.path)
            )
        return Axis.over(self.path, self.low, self.high, self.steps, log=self.log)


@dataclass(frozen=True)
class SweepRequest:
    """Form values, without the scenario: settings, random draws (0 = grid), seed, repeats."""

    varied: tuple[VariedSetting, ...]
    draw: int
    draw_seed: int
    repeats: int

    def sweep(self, study: Study, all_levers: Mapping[str, Lever]) -> Sweep:
        """Return the sweep of a study with these values, with an estimator if needed.

        Raises
        ------
        ParameterError
            If the values contradict each other.
        """
        chosen = [all_levers[setting.path] for setting in self.varied if setting.path in all_levers]
        base = replace(with_needed_estimator(study, chosen), repeats=self.repeats)
        return Sweep(
            base,
            tuple(setting.axis() for setting in self.varied),
            self.draw,
            self.draw_seed if self.draw else 0,
        )


def request_of(sweep: Sweep) -> SweepRequest:
    """Return the form values that give a sweep: varied settings, draw, seed and repeats.

    An axis with low and high ends becomes a range with as many steps as values, others a list.
    """
    varied = []
    for axis in sweep.axes:
        if axis.low is not None and axis.high is not None:
            varied.append(
                VariedSetting(axis.path, False, axis.low, axis.high, len(axis.values), axis.log)
            )
        else:
            varied.append(
                VariedSetting(
                    axis.path,
                    True,
                    text=", ".join(
                        f"{value:g}" if isinstance(value, float) else str(value)
                        for value in axis.values
                    ),
                )
            )
    return SweepRequest(tuple(varied), sweep.draw, sweep.draw_seed, sweep.study.repeats)


def equal_but_estimator(study: Study, other: Study) -> bool:
    """Return True if two studies differ at most in the estimator, which a sweep may set."""
    return study.matches(other) or replace(
        study, base=replace(study.base, estimator=other.base.estimator)
    ).matches(other)


def current_request(study: Study, all_levers: Mapping[str, Lever]) -> SweepRequest:
    """Return the form values of this session, or a sweep of the first lever.

    Values for settings that the study lacks are not used.
    """
    request: SweepRequest | None = st.session_state.get(_REQUEST)
    if request is not None and all(
        setting.path in all_levers or setting.path.startswith("trace.")
        for setting in request.varied
    ):
        return request
    first = next(iter(all_levers.values()))
    return SweepRequest((_default_setting(first, _FIRST_STEPS),), 0, 0, study.repeats)


def set_request(new: SweepRequest) -> None:
    """Replace the values of the form, and reset its widgets."""
    st.session_state[_REQUEST] = new
    st.session_state[_EDITION] = st.session_state.get(_EDITION, 0) + 1


def available_levers(study: Study) -> dict[str, Lever]:
    """Return path -> lever of the study's settings that can vary.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    return {lever.path: lever for lever in levers(study, server.store())}


def draw(
    request: SweepRequest, all_levers: Mapping[str, Lever], *, is_locked: bool
) -> SweepRequest:
    """Draw the form; return its values and keep them in the session."""
    varied = [_draw_setting(0, request, all_levers, (), is_locked)]
    second = _draw_setting(1, request, all_levers, (varied[0].path,), is_locked)
    varied += [second] if second.path else []
    varied += request.varied[2:]
    grid = st.grid(min_column_width=_CELL_PX, vertical_alignment="bottom")
    with grid.cell():
        point_mode = st.selectbox(
            "Points to run",
            ("All", "At random"),
            int(request.draw > 0),
            key=_widget_key("how"),
            disabled=is_locked,
            help=_POINTS,
        )
    draws, seed = 0, request.draw_seed
    if point_mode != "All":
        with grid.cell():
            draws = int(
                st.number_input(
                    "Random points",
                    1,
                    10_000,
                    request.draw or 20,
                    key=_widget_key("draw"),
                    disabled=is_locked,
                )
            )
        with grid.cell():
            seed = int(
                st.number_input(
                    "Seed of the draws",
                    0,
                    2**31 - 1,
                    request.draw_seed,
                    key=_widget_key("draw_seed"),
                    disabled=is_locked,
                )
            )
    with grid.cell():
        repeats = int(
            st.number_input(
                "Repeats",
                1,
                max(_MAX_REPEATS, request.repeats),
                request.repeats,
                key=_widget_key("repeats"),
                disabled=is_locked,
                help=_REPEATS,
            )
        )
    changed = SweepRequest(tuple(varied), draws, seed, repeats)
    st.session_state[_REQUEST] = changed
    return changed


def _draw_setting(
    position: int,
    request: SweepRequest,
    all_levers: Mapping[str, Lever],
    used_paths: tuple[str, ...],
    is_locked: bool,
) -> VariedSetting:
    """Draw the choice of a setting that varies, and its range or list; return them.

    `position` 1 may be without a setting; `used_paths` are not offered.
    """
    before = request.varied[position] if position < len(request.varied) else VariedSetting(_NOTHING)
    paths = [
        *([_NOTHING] if position else []),
        *(path for path in all_levers if path not in used_paths),
        *([before.path] if before.path and before.path not in all_levers else []),
    ]
    label, start = (
        "Second setting" if position else "Vary",
        paths.index(before.path) if before.path in paths else 0,
    )
    path = st.selectbox(
        label,
        paths,
        start,
        key=_widget_key("path", position, *used_paths),
        format_func=lambda path: _setting_label(path, all_levers),
        disabled=is_locked,
        width=420,
    )
    if path == _NOTHING:
        return VariedSetting(_NOTHING)
    grid = st.grid(min_column_width=_CELL_PX, vertical_alignment="bottom")
    lever = all_levers.get(path)
    setting = before if path == before.path else _default_setting(all_levers[path], _STEPS)
    with grid.cell():
        kinds = (_RANGE, _LIST)
        kind = st.segmented_control(
            "Values",
            kinds,
            default=kinds[setting.is_list],
            required=True,
            key=_widget_key("kind", position, path),
            disabled=is_locked,
        )
    if kind == _LIST:
        with grid.cell():
            text = st.text_input(
                "List of values",
                setting.text or _values_text(setting),
                key=_widget_key("text", position, path),
                disabled=is_locked,
                help="Separated by commas.",
            )
        return replace(setting, is_list=True, text=text)
    return _draw_range(grid, position, replace(setting, is_list=False), lever, is_locked)


def _draw_range(
    grid: Any, position: int, setting: VariedSetting, lever: Lever | None, is_locked: bool
) -> VariedSetting:
    """Draw begin, end and number of steps; return the setting with this range."""
    ends = []
    for name, value in (("From", setting.low), ("To", setting.high)):
        with grid.cell():
            ends.append(
                float(
                    st.number_input(
                        name,
                        value=float(value),
                        format="%g",
                        key=_widget_key(name, position, setting.path),
                        disabled=is_locked,
                        help=None
                        if lever is None
                        else f"In the scenario: {lever.now:g} {lever.unit}".rstrip() + ".",
                    )
                )
            )
    with grid.cell():
        steps = int(
            st.number_input(
                "Steps",
                2,
                _MAX_STEPS,
                setting.steps,
                key=_widget_key("steps", position, setting.path),
                disabled=is_locked,
            )
        )
    return replace(setting, low=ends[0], high=ends[1], steps=steps)


def _default_setting(lever: Lever, steps: int) -> VariedSetting:
    """Return a setting over the usual range of its lever, with at least two steps."""
    if lever.whole:
        steps = int(min(steps, lever.high - lever.low + 1))
    return VariedSetting(lever.path, False, lever.low, lever.high, max(steps, 2))


def _values_text(setting: VariedSetting) -> str:
    """Return the values of a setting as text, separated by commas; "" if it has none."""
    try:
        return ", ".join(f"{value:g}" for value in setting.axis().values)
    except ParameterError:
        return ""


def _setting_label(path: str, all_levers: Mapping[str, Lever]) -> str:
    """Return the label of a setting in the select box; its path if no lever has it."""
    if path == _NOTHING:
        return "none"
    return words.plain(all_levers[path].label) if path in all_levers else words.plain(path)


def axis_title(axis: Axis, all_levers: Mapping[str, Lever]) -> str:
    """Return the title of an axis, with its unit."""
    return all_levers[axis.path].label if axis.path in all_levers else axis.title


def _widget_key(*parts: object) -> str:
    """Return a widget key that changes when the form values are replaced."""
    return state.widget_key("sweep", *parts, st.session_state.get(_EDITION, 0))


_POINTS: Final = (
    "All: every value, and every combination of two settings. At random: points drawn from the"
    " ranges, which covers more with few runs."
)
_REPEATS: Final = (
    "Runs per point and policy, each with the next seed; three or more give bands. All policies"
    " get the same jobs and failures."
)

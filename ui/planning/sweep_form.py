"""What varies in a sweep, as a form: one or two things, each over a range or a list of values, in a
grid or drawn at random.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import streamlit as st

from sim.errors import ParameterError
from trainyard.study.study import Study
from trainyard.study.sweep import Axis, Sweep, axis_from_text
from trainyard.sweeps.axes import Lever, levers, prepared
from ui import server, state, words

_ASKED: Final = "sweep_asked"
_EDITION: Final = "sweep_edition"
_STEPS: Final = 5
_MOST_STEPS: Final = 1000
_MOST_REPEATS: Final = 50
_CELL_PX: Final = 135
_NOTHING: Final = ""
_RANGE: Final = "range"
_LIST: Final = "list"
_FIRST_STEPS: Final = 9


@dataclass(frozen=True)
class Varied:
    """One thing that varies.

    Parameters
    ----------
    path : str
        As `Axis.path`.
    listed : bool
        Whether its values are those of `text` instead of those of the range.
    low, high, steps : float, float, int
        The range.
    log : bool
        Whether equal ratios are taken.
    text : str
        Values, separated by commas.
    """

    path: str
    listed: bool = False
    low: float = 0.0
    high: float = 1.0
    steps: int = _STEPS
    log: bool = False
    text: str = ""

    def axis(self) -> Axis:
        """Return the axis.

        Raises
        ------
        ParameterError
            If it has no values.
        """
        if self.listed:
            return (
                axis_from_text(f"{self.path}={self.text}") if self.text.strip() else Axis(self.path)
            )
        return Axis.over(self.path, self.low, self.high, self.steps, log=self.log)


@dataclass(frozen=True)
class SweepRequest:
    """What the form holds, beside the scenario: what varies, random draws (0 = a grid), their seed,
    and repeats.
    """

    varied: tuple[Varied, ...]
    draw: int
    draw_seed: int
    repeats: int

    def sweep(self, study: Study, known: Mapping[str, Lever]) -> Sweep:
        """Return the sweep of a study.

        Raises
        ------
        ParameterError
            If the parts do not go together.
        """
        chosen = [known[one.path] for one in self.varied if one.path in known]
        base = replace(prepared(study, chosen), repeats=self.repeats)
        return Sweep(
            base,
            tuple(one.axis() for one in self.varied),
            self.draw,
            self.draw_seed if self.draw else 0,
        )


def of_sweep(sweep: Sweep) -> SweepRequest:
    """Return what the form holds for a sweep."""
    varied = []
    for axis in sweep.axes:
        if axis.low is not None and axis.high is not None:
            varied.append(Varied(axis.path, False, axis.low, axis.high, len(axis.values), axis.log))
        else:
            varied.append(
                Varied(
                    axis.path,
                    True,
                    text=", ".join(
                        f"{value:g}" if isinstance(value, float) else str(value)
                        for value in axis.values
                    ),
                )
            )
    return SweepRequest(tuple(varied), sweep.draw, sweep.draw_seed, sweep.study.repeats)


def alike(own: Study, other: Study) -> bool:
    """Tell whether two studies are the same but for what a sweep changes of them: the estimator,
    where an error of it varies.
    """
    return own.matches(other) or replace(
        own, base=replace(own.base, estimator=other.base.estimator)
    ).matches(other)


def asked(study: Study, known: Mapping[str, Lever]) -> SweepRequest:
    """Return what the form of this session holds; at first the load."""
    found: SweepRequest | None = st.session_state.get(_ASKED)
    if found is not None and all(
        one.path in known or one.path.startswith("trace.") for one in found.varied
    ):
        return found
    first = next(iter(known.values()))
    return SweepRequest((_usual(first, _FIRST_STEPS),), 0, 0, study.repeats)


def take(new: SweepRequest) -> None:
    """Let the form hold something else."""
    st.session_state[_ASKED] = new
    st.session_state[_EDITION] = st.session_state.get(_EDITION, 0) + 1


def choices(study: Study) -> dict[str, Lever]:
    """Return what may vary: path -> lever.

    Raises
    ------
    TrainyardError
        If the trace cannot be loaded.
    """
    return {lever.path: lever for lever in levers(study, server.store())}


def draw(now: SweepRequest, known: Mapping[str, Lever], *, locked: bool) -> SweepRequest:
    """Draw the form and return what it holds."""
    varied = [_one(0, now, known, (), locked)]
    second = _one(1, now, known, (varied[0].path,), locked)
    varied += [second] if second.path else []
    varied += now.varied[2:]
    grid = st.grid(min_column_width=_CELL_PX, vertical_alignment="bottom")
    with grid.cell():
        how = st.selectbox(
            "Points",
            ("all", "at random"),
            int(now.draw > 0),
            key=_key("how"),
            disabled=locked,
            help=_POINTS,
        )
    draws, seed = 0, now.draw_seed
    if how != "all":
        with grid.cell():
            draws = int(
                st.number_input(
                    "How many", 1, 10_000, now.draw or 20, key=_key("draw"), disabled=locked
                )
            )
        with grid.cell():
            seed = int(
                st.number_input(
                    "Seed of the draws",
                    0,
                    2**31 - 1,
                    now.draw_seed,
                    key=_key("draw_seed"),
                    disabled=locked,
                )
            )
    with grid.cell():
        most = max(_MOST_REPEATS, now.repeats)
        repeats = int(
            st.number_input(
                "Repeats", 1, most, now.repeats, key=_key("repeats"), disabled=locked, help=_REPEATS
            )
        )
    new = SweepRequest(tuple(varied), draws, seed, repeats)
    st.session_state[_ASKED] = new
    return new


def _one(
    at: int, now: SweepRequest, known: Mapping[str, Lever], taken: tuple[str, ...], locked: bool
) -> Varied:
    """Draw one thing that varies."""
    was = now.varied[at] if at < len(now.varied) else Varied(_NOTHING)
    paths = [
        *([_NOTHING] if at else []),
        *(path for path in known if path not in taken),
        *([was.path] if was.path and was.path not in known else []),
    ]
    label, start = "and" if at else "What varies", paths.index(was.path) if was.path in paths else 0
    path = st.selectbox(
        label,
        paths,
        start,
        key=_key("path", at, *taken),
        format_func=lambda one: _label(one, known),
        disabled=locked,
        width=420,
    )
    if path == _NOTHING:
        return Varied(_NOTHING)
    grid = st.grid(min_column_width=_CELL_PX, vertical_alignment="bottom")
    lever = known.get(path)
    session = was if path == was.path else _usual(known[path], _STEPS)
    with grid.cell():
        kinds = (_RANGE, _LIST)
        kind = st.segmented_control(
            "Values",
            kinds,
            default=kinds[session.listed],
            required=True,
            key=_key("kind", at, path),
            disabled=locked,
        )
    if kind == _LIST:
        with grid.cell():
            text = st.text_input(
                "one by one",
                session.text or _spelled(session),
                key=_key("text", at, path),
                disabled=locked,
                help="Separated by commas.",
            )
        return replace(session, listed=True, text=text)
    return _over(grid, at, replace(session, listed=False), lever, locked)


def _over(grid: Any, at: int, session: Varied, lever: Lever | None, locked: bool) -> Varied:
    ends = []
    for name, value in (("from", session.low), ("to", session.high)):
        with grid.cell():
            help_ = (
                None
                if lever is None
                else f"It is {lever.now:g}{f' {lever.unit}' if lever.unit else ''} in the scenario."
            )
            ends.append(
                float(
                    st.number_input(
                        name,
                        value=float(value),
                        format="%g",
                        key=_key(name, at, session.path),
                        disabled=locked,
                        help=help_,
                    )
                )
            )
    with grid.cell():
        steps = int(
            st.number_input(
                "steps",
                2,
                _MOST_STEPS,
                session.steps,
                key=_key("steps", at, session.path),
                disabled=locked,
            )
        )
    return replace(session, low=ends[0], high=ends[1], steps=steps)


def _usual(lever: Lever, steps: int) -> Varied:
    if lever.whole:
        steps = int(min(steps, lever.high - lever.low + 1))
    return Varied(lever.path, False, lever.low, lever.high, max(steps, 2))


def _spelled(session: Varied) -> str:
    try:
        return ", ".join(f"{value:g}" for value in session.axis().values)
    except ParameterError:
        return ""


def _label(path: str, known: Mapping[str, Lever]) -> str:
    if path == _NOTHING:
        return "nothing else"
    return words.plain(known[path].label) if path in known else words.plain(path)


def title(axis: Axis, known: Mapping[str, Lever]) -> str:
    """Return what an axis is called, with its unit."""
    return known[axis.path].label if axis.path in known else axis.title


def _key(*parts: object) -> str:
    return state.widget("sweep", *parts, st.session_state.get(_EDITION, 0))


_POINTS: Final = (
    "All: every value, and of two things every combination. At random: so many points drawn from"
    " the ranges, which covers much with few runs."
)
_REPEATS: Final = (
    "Runs of every point and policy, each with the next seed; from three on there are bands. All"
    " policies meet the same jobs and the same bad luck."
)

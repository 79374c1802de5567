"""Forms derived from declared parameters: one widget for each, with unit, bounds and help; nothing
is written by hand for a policy or a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import streamlit as st

from sim.errors import ParameterError
from sim.params import ParamInfo, Spec, is_file_text
from trainyard.study import catalog, files
from ui import received

CELL_PX: Final = 190


def label(info: ParamInfo) -> str:
    """Return what stands above the widget: the parameter in words, with its unit."""
    return f"{info.title} ({info.unit})" if info.unit else info.title


def fields(params: Sequence[ParamInfo], values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Draw the widgets in a grid that reflows, and return what they hold.

    Parameters
    ----------
    params : sequence of ParamInfo
        One widget for each.
    values : mapping
        What is set; the others start at their defaults.
    key : str
        Beginning of the widgets' keys, unique on the page.

    Returns
    -------
    dict
        Every parameter with its value; checking is left to `trainyard.study.catalog.canonical`.
    """
    if not params:
        st.caption("No parameters.")
        return {}
    made: dict[str, Any] = {}
    grid = st.grid(min_column_width=CELL_PX, vertical_alignment="bottom")
    for info in params:
        value = values.get(info.name, info.default)
        with grid.cell():
            made[info.name] = _DRAW[info.kind](info, value, f"{key}/{info.name}")
    return made


def spec(kind_name: str, chosen: Spec, key: str) -> Spec:
    """Draw the form of a policy or model and return it with the values entered."""
    made = fields(catalog.choice_params(kind_name), chosen.values, key)
    return Spec.of(chosen.name, **made)


def _whole(info: ParamInfo, value: Any, key: str) -> Any:
    low, high = (None if bound is None else int(bound) for bound in (info.low, info.high))
    return st.number_input(label(info), low, high, int(value), step=1, key=key, help=_help(info))


def _real(info: ParamInfo, value: Any, key: str) -> Any:
    low, high = (None if bound is None else float(bound) for bound in (info.low, info.high))
    return st.number_input(
        label(info),
        low,
        high,
        float(value),
        step=_step(info),
        format="%g",
        key=key,
        help=_help(info),
    )


def _step(info: ParamInfo) -> float:
    return 1.0 if info.high is not None and info.high > 100 else 0.05


def _choice(info: ParamInfo, value: Any, key: str) -> Any:
    options = list(info.choices)
    return st.selectbox(
        label(info),
        options,
        options.index(str(value)),
        key=key,
        help=_help(info),
        format_func=info.label,
    )


def _yes_no(info: ParamInfo, value: Any, key: str) -> Any:
    return st.toggle(label(info), bool(value), key=key, help=_help(info))


def _text(info: ParamInfo, value: Any, key: str) -> Any:
    return st.text_input(label(info), str(value), key=key, help=_help(info)).strip()


def _file(info: ParamInfo, value: Any, key: str) -> Any:
    """Draw the choices, if there are any, and a field for the file; the text is kept when the page
    is left.
    """
    text, picked = str(value), str(info.default)
    if info.choices:
        picked = st.selectbox(
            label(info),
            info.choices,
            info.choices.index(text) if text in info.choices else 0,
            key=key,
            help=_help(info),
            format_func=info.label,
        )
    given = st.file_uploader(
        f"{label(info)}: {info.file}" if info.choices else label(info),
        key=f"{key}/file",
        max_upload_size=8,
        help=_help(info),
    )
    taken = f"{key}/taken"
    if given is not None and st.session_state.get(taken) != given.file_id:
        st.session_state[taken] = given.file_id
        st.session_state.pop(f"{key}/use", None)
        try:
            return files.text_of(received.take_bytes(given, f"{key}/file"), info)
        except ParameterError as error:
            st.error(str(error), icon=":material/error:")
    if not is_file_text(text):
        return picked
    if st.toggle(f"Use the {info.file} that was read", value=True, key=f"{key}/use"):
        st.caption(f"{info.file}: {len(text.splitlines()):,} lines")
        return text
    return picked


def _numbers(info: ParamInfo, value: Any, key: str) -> Any:
    text = "/".join(f"{number:g}" for number in value)
    return st.text_input(
        label(info), text, key=key, help=_help(info), placeholder="3250/7200"
    ).strip()


def _spec(info: ParamInfo, value: Any, key: str) -> Any:
    chosen = value if isinstance(value, Spec) else Spec.from_json(value)
    choices = {
        choice.name: choice.title
        for choice in catalog.allocator_choices()
        if not any(param.kind == "spec" for param in choice.params)
    }
    names = list(choices)
    at = names.index(chosen.name) if chosen.name in names else 0
    name = st.selectbox(
        label(info), names, at, key=key, help=_help(info), format_func=lambda one: choices[one]
    )
    with st.expander(f"Parameters of {choices[name]}"):
        inner = fields(
            catalog.choice_params(name),
            chosen.values if name == chosen.name else {},
            f"{key}/{name}",
        )
    return Spec.of(name, **inner)


def _help(info: ParamInfo) -> str:
    low = "" if info.low is None else f"{info.low:g}"
    high = "" if info.high is None else f"{info.high:g}"
    bounds = (
        f"{low} to {high}"
        if low and high
        else f"at least {low}"
        if low
        else f"at most {high}"
        if high
        else ""
    )
    unit = f" {info.unit}" if info.unit else ""
    text = info.help.rstrip()
    return f"{text} Allowed: {bounds}{unit}." if bounds else text


_DRAW: Final[Mapping[str, Callable[[ParamInfo, Any, str], Any]]] = {
    "bool": _yes_no,
    "int": _whole,
    "float": _real,
    "text": _text,
    "file": _file,
    "choice": _choice,
    "numbers": _numbers,
    "spec": _spec,
}

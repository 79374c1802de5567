"""Forms built from declared parameters: one widget per parameter, with unit and bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import streamlit as st

from sim.errors import ParameterError
from sim.params import ParamInfo, Spec, is_file_text
from trainyard.study import catalog, files
from ui import uploaded_files

CELL_PX: Final = 190


def label_of(info: ParamInfo) -> str:
    """Return the label of a parameter: title and unit."""
    return f"{info.title} ({info.unit})" if info.unit else info.title


def draw_fields(params: Sequence[ParamInfo], values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Draw the widgets of parameters in a grid; return the entered values by name.

    Parameters
    ----------
    params : sequence of ParamInfo
        Parameters, one widget each.
    values : mapping
        Current values; other parameters start at their defaults.
    key : str
        Prefix of the widgets' keys, unique on the page.

    Returns
    -------
    dict
        Parameter name -> value, not checked: see `trainyard.study.catalog.canonical`.
    """
    if not params:
        st.caption("No settings.")
        return {}
    entered: dict[str, Any] = {}
    grid = st.grid(min_column_width=CELL_PX, vertical_alignment="bottom")
    for info in params:
        value = values.get(info.name, info.default)
        with grid.cell():
            entered[info.name] = _DRAW[info.kind](info, value, f"{key}/{info.name}")
    return entered


def draw_spec(kind_name: str, chosen: Spec, key: str) -> Spec:
    """Draw the parameters of a policy or model named `kind_name`; return its new Spec."""
    entered = draw_fields(catalog.choice_params(kind_name), chosen.values, key)
    return Spec.of(chosen.name, **entered)


def _draw_int(info: ParamInfo, value: Any, key: str) -> Any:
    """Draw an integer parameter; return its value."""
    low, high = (None if bound is None else int(bound) for bound in (info.low, info.high))
    return st.number_input(
        label_of(info), low, high, int(value), step=1, key=key, help=_help_text(info)
    )


def _draw_float(info: ParamInfo, value: Any, key: str) -> Any:
    """Draw a float parameter; return its value."""
    low, high = (None if bound is None else float(bound) for bound in (info.low, info.high))
    return st.number_input(
        label_of(info),
        low,
        high,
        float(value),
        step=_step_size(info),
        format="%g",
        key=key,
        help=_help_text(info),
    )


def _step_size(info: ParamInfo) -> float:
    return 1.0 if info.high is not None and info.high > 100 else 0.05


def _draw_choice(info: ParamInfo, value: Any, key: str) -> Any:
    """Draw a parameter with named choices; return its value."""
    options = list(info.choices)
    return st.selectbox(
        label_of(info),
        options,
        options.index(str(value)),
        key=key,
        help=_help_text(info),
        format_func=info.label,
    )


def _draw_toggle(info: ParamInfo, value: Any, key: str) -> Any:
    """Draw a boolean parameter; return its value."""
    return st.toggle(label_of(info), bool(value), key=key, help=_help_text(info))


def _draw_text(info: ParamInfo, value: Any, key: str) -> Any:
    """Draw a text parameter; return its value."""
    return st.text_input(label_of(info), str(value), key=key, help=_help_text(info)).strip()


def _draw_file(info: ParamInfo, value: Any, key: str) -> Any:
    """Draw choices, an uploader and a toggle; return the file's text, or the choice."""
    text, choice = str(value), str(info.default)
    if info.choices:
        choice = st.selectbox(
            label_of(info),
            info.choices,
            info.choices.index(text) if text in info.choices else 0,
            key=key,
            help=_help_text(info),
            format_func=info.label,
        )
    upload = st.file_uploader(
        f"{label_of(info)}: {info.file}" if info.choices else label_of(info),
        key=f"{key}/file",
        max_upload_size=8,
        help=_help_text(info),
    )
    read_key = f"{key}/taken"
    if upload is not None and st.session_state.get(read_key) != upload.file_id:
        st.session_state[read_key] = upload.file_id
        st.session_state.pop(f"{key}/use", None)
        try:
            return files.decode_file(uploaded_files.take_bytes(upload, f"{key}/file"), info)
        except ParameterError as error:
            st.error(str(error), icon=":material/error:")
    if not is_file_text(text):
        return choice
    if st.toggle(f"Use the uploaded {info.file}", value=True, key=f"{key}/use"):
        st.caption(f"{info.file}: {len(text.splitlines()):,} lines")
        return text
    return choice


def _draw_numbers(info: ParamInfo, value: Any, key: str) -> Any:
    """Draw a text field for several numbers, separated by slashes; return its text."""
    text = "/".join(f"{number:g}" for number in value)
    return st.text_input(
        label_of(info), text, key=key, help=_help_text(info), placeholder="3250/7200"
    ).strip()


def _draw_inner_policy(info: ParamInfo, value: Any, key: str) -> Any:
    """Draw the choice of a wrapper's inner policy and its form; return its Spec.

    Wrappers are not offered.
    """
    chosen = value if isinstance(value, Spec) else Spec.from_json(value)
    choices = {
        choice.name: choice.title
        for choice in catalog.allocator_choices()
        if not any(param.kind == "spec" for param in choice.params)
    }
    names = list(choices)
    index = names.index(chosen.name) if chosen.name in names else 0
    name = st.selectbox(
        label_of(info),
        names,
        index,
        key=key,
        help=_help_text(info),
        format_func=lambda name: choices[name],
    )
    with st.expander(f"{choices[name]} settings"):
        inner = draw_fields(
            catalog.choice_params(name),
            chosen.values if name == chosen.name else {},
            f"{key}/{name}",
        )
    return Spec.of(name, **inner)


def _help_text(info: ParamInfo) -> str:
    """Return the help of a parameter with its allowed range."""
    low = "" if info.low is None else f"{info.low:,.12g}"
    high = "" if info.high is None else f"{info.high:,.12g}"
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
    "bool": _draw_toggle,
    "int": _draw_int,
    "float": _draw_float,
    "text": _draw_text,
    "file": _draw_file,
    "choice": _draw_choice,
    "numbers": _draw_numbers,
    "spec": _draw_inner_policy,
}

"""Parameters of the address that a page of its own needs, kept in the session too: a change of page, and sometimes Back, drop them."""

from __future__ import annotations

from typing import Final

import streamlit as st

SEAT: Final = "seat"
"""Parameter of the address: a random number, so that a reload is not another student; of one browser, so no link for others has it."""
_KEPT: Final = "place"


def asked(name: str) -> str:
    """Return a parameter of the address, or what it was when this session last wrote it; "" = neither."""
    return str(st.query_params.get(name, _kept().get(name, "")))


def put(name: str, value: str) -> None:
    """Write a parameter of the address; "" takes it out."""
    _kept()[name] = value
    if value and st.query_params.get(name) != value:
        st.query_params[name] = value
    elif not value:
        st.query_params.pop(name, None)


def _kept() -> dict[str, str]:
    kept: dict[str, str] = st.session_state.setdefault(_KEPT, {})
    return kept

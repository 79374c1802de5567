"""Error boundaries: exceptions of a page part, a fragment or a callback become messages."""

from __future__ import annotations

import html
import logging
import platform
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

import streamlit as st
from streamlit import error_util
from streamlit.errors import FragmentHandledException

from sim.errors import TrainyardError
from ui import words

_LOG: Final = logging.getLogger(__name__)
_ROOT: Final = Path(__file__).resolve().parents[1]
_BUTTON: Final = (
    "padding: 4px 12px; border: 1px solid currentColor; border-radius: 6px; background: none;"
    " color: inherit; font: inherit; text-decoration: none; cursor: pointer"
)


def run_guarded(body: Callable[[], None]) -> None:
    """Call a function that draws a part of a page; an exception becomes a message."""
    try:
        body()
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
    except FragmentHandledException:
        return  # the fragment has drawn the panel
    except Exception as error:  # the boundary of the app: users never see a traceback
        _LOG.exception("A fault on the page")
        draw_panel(error)


def draw_panel(ex: BaseException) -> None:
    """Draw the panel of an unexpected error: trace is kept, Reload, details to report.

    Notes
    -----
    It brings its own style, because a failed callback leaves the page without a style sheet.
    """
    st.html(
        '<div class="ty-broken" role="alert" style="padding: 16px; border: 1px solid light-dark('
        '#B23A00, #FF9E64); border-radius: 6px"><strong>Something broke. Your trace is kept.'
        '</strong><div style="display: flex; gap: 8px; margin: 12px 0">'
        f'<a href="" target="_self" style="{_BUTTON}">Reload</a>'
        f'<button type="button" style="{_BUTTON}">Copy details</button></div>'
        "<details><summary>Details for a report</summary>"
        f'<pre style="overflow-x: auto">{html.escape(_format_details(ex))}</pre></details></div>'
    )


def _format_details(error: BaseException) -> str:
    """Return an exception's code lines in this project, type, message and versions."""
    where = [
        f"{Path(frame.filename).relative_to(_ROOT)}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(_ROOT) and ".venv" not in Path(frame.filename).parts
    ]
    versions = f"Python {platform.python_version()}, Streamlit {st.__version__}"
    return "\n".join([*where, f"{type(error).__name__}: {error}", versions])


# Streamlit calls this for every exception that leaves the script, a fragment or a callback. Its
# setting `on_script_error` would need another way to start the server.
error_util.show_uncaught_app_exception = draw_panel

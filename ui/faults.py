"""The border at which faults become sentences: around each part of a page, and in each part that is
drawn by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from ui import words

_LOG: Final = logging.getLogger(__name__)


def guarded(body: Callable[[], None]) -> None:
    """Run a part of the page; a fault ends this part only, with one sentence."""
    try:
        body()
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
    except Exception as error:  # the border of the process: a user never sees a traceback
        _LOG.exception("A fault on the page")
        st.error(
            f"A fault in Trainyard stopped this part of the page ({type(error).__name__}). The log"
            " of the server says more; please report it."
        )

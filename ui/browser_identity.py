"""Whose shelf it is: every browser has a random token in a cookie, and sees what was run or opened
with it, and nothing of anybody else's.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.library import library
from trainyard.library.library import Recipe
from trainyard.study.study import Study
from ui import server

_COOKIE: Final = "trainyard_browser"
_DAYS: Final = 400
"""From the last visit; browsers keep cookies no longer."""
_TOKEN: Final = "owner/token"
_TEXT: Final = re.compile(r"[0-9a-f]{32}")


def owner() -> str:
    """Return the name of this browser's shelf: a hash of its token, so that nobody who reads the
    library's database can take it over.

    Notes
    -----
    The first session makes the token, 128 random bits, and its page puts it into a cookie, which
    later sessions bring. Where no cookies are kept, every session has a shelf of its own.
    """
    return hashlib.blake2b(_token().encode(), digest_size=16, person=b"trainyard shelf").hexdigest()


def _token() -> str:
    if _TOKEN not in st.session_state:
        brought = str(st.context.cookies.get(_COOKIE))
        st.session_state[_TOKEN] = brought if _TEXT.fullmatch(brought) else secrets.token_hex(16)
    known: str = st.session_state[_TOKEN]
    return known


def script() -> str:
    """Return the script that lets the browser keep its token; the same throughout a session, so
    that it runs once.
    """
    # A second tab that was opened before the first one's token arrived takes that one over at its
    # next visit.
    settings = f"path=/; max-age={_DAYS * 86_400}; samesite=lax"
    return f"""<script>
document.cookie = "{_COOKIE}={_token()}; {settings}" + (location.protocol === "https:" ? "; secure" : "");
</script>"""  # noqa: E501


def shelve(recipe: Recipe, keys: Sequence[str]) -> str:
    """Put what was run or opened on this browser's shelf; return why it could not be, as one
    sentence, or "".
    """
    try:
        library.shelve(server.store(), owner(), recipe, keys)
    except TrainyardError as error:
        return f"This comparison was not added to your runs. {error}"
    return ""


def rename(study: Study) -> str:
    """Give a comparison the name of the scenario, if it is on this browser's shelf; return why it
    could not be given, as one sentence, or "".
    """
    try:
        server.store().index.label(owner(), library.identity(study.named("")), name=study.base.name)
    except TrainyardError as error:
        return f"The new name was not saved in your runs. {error}"
    return ""

"""Browser identity: a random token in a cookie that names the browser's list of runs."""

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
"""Lifetime of the cookie; browsers allow no more."""
_TOKEN: Final = "owner/token"
_TEXT: Final = re.compile(r"[0-9a-f]{32}")


def owner() -> str:
    """Return the owner id of this browser's runs: a hash of its token, useless as a login.

    Notes
    -----
    The first session creates the token, 128 random bits, and its page stores it in a cookie, which
    later sessions send. Without cookies, every session has its own list.
    """
    return hashlib.blake2b(_token().encode(), digest_size=16, person=b"trainyard shelf").hexdigest()


def _token() -> str:
    """Return the browser's token: the session's, else its cookie's, else a new one."""
    if _TOKEN not in st.session_state:
        cookie = str(st.context.cookies.get(_COOKIE))
        st.session_state[_TOKEN] = cookie if _TEXT.fullmatch(cookie) else secrets.token_hex(16)
    token: str = st.session_state[_TOKEN]
    return token


def cookie_script() -> str:
    """Return the HTML script that stores the token in a cookie; constant in a session."""
    # A second tab opened before the first tab's cookie was set adopts that token at its next visit.
    settings = f"path=/; max-age={_DAYS * 86_400}; samesite=lax"
    return f"""<script>
document.cookie = "{_COOKIE}={_token()}; {settings}" + (location.protocol === "https:" ? "; secure" : "");
</script>"""  # noqa: E501


def add_to_runs(recipe: Recipe, keys: Sequence[str]) -> str:
    """Add a study or plan to this browser's runs; return an error message, or ""."""
    try:
        library.shelve(server.store(), owner(), recipe, keys)
    except TrainyardError as error:
        return f"This comparison was not added to your runs. {error}"
    return ""


def rename_run(study: Study) -> str:
    """Save the study's name in this browser's runs; return an error message, or ""."""
    try:
        server.store().index.label(
            owner(), library.recipe_id(study.with_name("")), name=study.base.name
        )
    except TrainyardError as error:
        return f"The new name was not saved in your runs. {error}"
    return ""

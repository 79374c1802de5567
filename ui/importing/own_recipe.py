"""How a file was read, kept for the next one with the same columns: a recipe that is the browser's
own, and can be passed on as a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.traces.intake import TraceIntake
from trainyard.traces.own_recipes import OwnRecipe, checked, of_text
from ui import browser_identity, received, server, state, words

_FIELD: Final = "recipe_file"
_TAKEN: Final = "taken_recipe"
Read = Callable[[OwnRecipe | None], None]
"""Reads the file of this session again by a recipe, or without one."""


def known(fingerprint: str) -> OwnRecipe | None:
    """Return the recipe that this browser kept for such files; None = there is none."""
    if not fingerprint:
        return None
    try:
        text = server.store().index.recipe(browser_identity.owner(), fingerprint)
        return of_text(text, "Your recipe") if text else None
    except TrainyardError:
        return None  # written by an earlier version, or the database is away: the file is asked


def choices(recipe: OwnRecipe) -> dict[str, Any]:
    """Return the choices of a recipe as those of an upload."""
    return {**recipe.choices, **({"fmt": recipe.fmt} if recipe.fmt else {})}


def draw(upload: state.Upload, taken: TraceIntake | None, read: Read) -> None:
    """Draw, folded, what can be done with the way in which a file was read.

    Parameters
    ----------
    upload : Upload
        The file of this session.
    taken : TraceIntake or None
        What was read; None = it could not be.
    read : callable
        See `Read`.
    """
    with st.popover("Recipe", icon=":material/receipt_long:", key="recipe"):
        if taken is not None:
            _keep(upload, taken.recipe, read)
        _receive(read)
        if taken is not None:
            with st.expander("Show it"):
                st.code(taken.recipe.text, language="toml", wrap_lines=True)


def said(upload: state.Upload, taken: TraceIntake | None, read: Read) -> None:
    """Say by which recipe of the user a file was read, and offer to read it without; arguments as
    of `draw`.
    """
    if upload.recipe is None:
        return
    changed = taken is not None and not taken.recipe.same(upload.recipe)
    more = ", with changes of yours" if changed else ""
    with st.container(horizontal=True, vertical_alignment="center", key="by_recipe"):
        st.caption(f":material/receipt_long: Read by {words.plain(upload.recipe.told)}{more}.")
        if st.button("Read without it", key="without_recipe", type="tertiary"):
            read(None)
            st.rerun()


def _keep(upload: state.Upload, made: OwnRecipe, read: Read) -> None:
    mark, owner = made.fingerprint, browser_identity.owner()
    own = known(mark)
    st.markdown("**How this file was read, for the next one like it**")
    st.caption(
        "Columns, units, time zone and answers are kept; the next file with the same columns is"
        " read by them without a question. Only this browser uses them."
        if mark
        else "This file has no names of columns by which the next one could be known."
    )
    same = own is not None and own.same(made)
    with st.container(horizontal=True):
        if mark and not same:
            label = "Save the changes" if own is not None else "Save for such files"
            if st.button(label, key="save_recipe", icon=":material/save:"):
                _store(lambda: server.store().index.keep_recipe(owner, mark, made.text))
                upload.recipe = made
                st.rerun()
        if own is not None and st.button(
            "Forget it", key="forget_recipe", icon=":material/delete:", type="tertiary"
        ):
            _store(lambda: server.store().index.forget_recipe(owner, mark))
            upload.recipe = None
            st.rerun()
        st.download_button(
            "Download (TOML)",
            made.text,
            f"{made.name}.toml",
            "application/toml",
            on_click="ignore",
            icon=":material/download:",
            type="tertiary",
            help="For this page elsewhere, or for `trainyard convert FILE --recipe FILE.toml`.",
        )


def _store(change: Callable[[], None]) -> None:
    try:
        change()
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        st.stop()


def _receive(read: Read) -> None:
    """Draw the field for a recipe as a file, and read by one as soon as it arrives."""
    label = "Read the file by a recipe (TOML)"
    file = st.file_uploader(label, ["toml"], key=_FIELD, max_upload_size=1)
    if file is None or st.session_state.get(_TAKEN) == file.file_id:
        return
    st.session_state[_TAKEN] = file.file_id
    text = received.take_bytes(file, _FIELD).decode("utf-8-sig", "replace")
    try:
        recipe = checked(text, file.name)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    read(recipe)
    st.rerun()

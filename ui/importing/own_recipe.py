"""Recipes: how a file was read, kept for files with the same columns, or as a TOML file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.traces.intake import TraceIntake
from trainyard.traces.own_recipes import OwnRecipe, check_own_recipe, parse_own_recipe
from ui import browser_identity, server, state, uploaded_files, words

_FIELD: Final = "recipe_file"
_TAKEN: Final = "taken_recipe"
Read = Callable[[OwnRecipe | None], None]
"""Reads the file of this session again with a recipe, or without one."""


def find_recipe(fingerprint: str) -> OwnRecipe | None:
    """Return this browser's recipe for files with this fingerprint of columns, or None."""
    if not fingerprint:
        return None
    try:
        text = server.store().index.recipe(browser_identity.owner(), fingerprint)
        return parse_own_recipe(text, "Your recipe") if text else None
    except TrainyardError:
        return None  # of an earlier version, or no database: the file is read without a recipe


def choices_of(recipe: OwnRecipe) -> dict[str, Any]:
    """Return the reading options of a recipe, with its format as `fmt`."""
    return {**recipe.choices, **({"fmt": recipe.fmt} if recipe.fmt else {})}


def draw(upload: state.Upload, intake: TraceIntake | None, read: Read) -> None:
    """Draw the menu Recipe: keep or delete this file's recipe, read with another, show it.

    Parameters
    ----------
    upload : Upload
        The file of this session.
    intake : TraceIntake or None
        The result of reading it; None if it could not be read.
    read : callable
        See `Read`.
    """
    with st.popover("Recipe", icon=":material/receipt_long:", key="recipe"):
        if intake is not None:
            _draw_keep(upload, intake.recipe, read)
        _draw_upload(read)
        if intake is not None:
            with st.expander("Show it"):
                st.code(intake.recipe.text, language="toml", wrap_lines=True)


def draw_used_recipe(upload: state.Upload, intake: TraceIntake | None, read: Read) -> None:
    """Draw which recipe read the file, and the button that reads it without; see `draw`."""
    if upload.recipe is None:
        return
    changed = intake is not None and not intake.recipe.reads_like(upload.recipe)
    change_note = ", with your changes" if changed else ""
    with st.container(horizontal=True, vertical_alignment="center", key="by_recipe"):
        st.caption(
            f":material/receipt_long: Read by {words.plain(upload.recipe.label)}{change_note}."
        )
        if st.button("Read without it", key="without_recipe", type="tertiary"):
            read(None)
            st.rerun()


def _draw_keep(upload: state.Upload, recipe: OwnRecipe, read: Read) -> None:
    """Draw buttons that save, delete and download the recipe of the file as it was read."""
    fingerprint, owner = recipe.fingerprint, browser_identity.owner()
    kept_recipe = find_recipe(fingerprint)
    st.markdown("**How this file was read**")
    st.caption(
        "Keeps columns, units, time zone and answers for the next file with the same columns, in"
        " this browser."
        if fingerprint
        else "This file has no column names to recognize similar files by."
    )
    is_kept = kept_recipe is not None and kept_recipe.reads_like(recipe)
    with st.container(horizontal=True):
        if fingerprint and not is_kept:
            label = "Save changes" if kept_recipe is not None else "Save for similar files"
            if st.button(label, key="save_recipe", icon=":material/save:"):
                _store_or_stop(
                    lambda: server.store().index.keep_recipe(owner, fingerprint, recipe.text)
                )
                upload.recipe = recipe
                st.rerun()
        if kept_recipe is not None and st.button(
            "Delete", key="forget_recipe", icon=":material/delete:", type="tertiary"
        ):
            _store_or_stop(lambda: server.store().index.forget_recipe(owner, fingerprint))
            upload.recipe = None
            st.rerun()
        st.download_button(
            "Download (TOML)",
            recipe.text,
            f"{recipe.name}.toml",
            "application/toml",
            on_click="ignore",
            icon=":material/download:",
            type="tertiary",
            help="For another browser, or `trainyard convert FILE --recipe FILE.toml`.",
        )


def _store_or_stop(change: Callable[[], None]) -> None:
    """Call a change of the stored recipes; if it fails, draw its error and stop the page."""
    try:
        change()
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        st.stop()


def _draw_upload(read: Read) -> None:
    """Draw the uploader for a recipe file; read the trace file again with a new recipe."""
    label = "Read with a recipe file (TOML)"
    file = st.file_uploader(label, ["toml"], key=_FIELD, max_upload_size=1)
    if file is None or st.session_state.get(_TAKEN) == file.file_id:
        return
    st.session_state[_TAKEN] = file.file_id
    text = uploaded_files.take_bytes(file, _FIELD).decode("utf-8-sig", "replace")
    try:
        recipe = check_own_recipe(text, file.name)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    read(recipe)
    st.rerun()

"""Share: the slide of a comparison as PNG, as PDF or in the clipboard, drawn by the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import streamlit as st

from sim.errors import TrainyardError
from trainyard.results.outcomes import StudyResults
from trainyard.views import slide
from ui import comparison, figure, words
from ui.comparing import screen

_WAYS: Final = {"png": "Slide (PNG)", "pdf": "Slide (PDF)", "copy": "Copy the slide"}
_ICONS: Final = {"png": "download", "pdf": "download", "copy": "content_copy"}
_BUTTONS: Final = "".join(
    f'<button type="button" data-way="{way}"><span>{_ICONS[way]}</span>{label}</button>'
    for way, label in _WAYS.items()
)
_MOUNT: Final = st.components.v2.component(
    "trainyard_slide",
    html=f'<div class="ty-slide">{_BUTTONS}<output></output></div>',
    js=(Path(__file__).parent / "slide.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def draw_buttons(runs: StudyResults) -> None:
    """Draw the buttons that save or copy the slide, if the page shows charts."""
    compared = comparison.compare(runs)
    if compared is None:
        return
    try:
        view = comparison.build_view(compared, screen.read_choice(compared))
        if not screen.shows_charts(view):
            return
        contents = slide.slide_contents(view, dark=figure.is_dark())
    except TrainyardError as error:
        st.caption(words.plain(f"No slide: {error}"))
        return
    _MOUNT(key="slide", data=contents)

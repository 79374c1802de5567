"""Cards of replays on Start: published and simulated figures; a click opens the comparison."""

from __future__ import annotations

import html
from typing import Final

import streamlit as st

from trainyard.labs.replays import cards
from trainyard.labs.replays.reading import cards as all_cards
from trainyard.labs.replays.types import CardFigure, ReplayCard
from trainyard.study.study import Study
from trainyard.views import replays

_VERDICTS: Final = {
    "in": ("better", "●", "agrees"),
    "out": ("worse", "○", "differs"),
    "undecided": ("", "◐", "undecided"),
}
"""Verdict of a row -> CSS class, sign and text."""
_MIN_PX: Final = 200


def draw() -> Study | None:
    """Draw the row of cards; return the comparison of the card just clicked, or None."""
    clicked = None
    with st.container(key="papers", gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.subheader("Schedulers from the papers", anchor=False, width="content")
            st.caption(
                "Figures over several seeds. One click compares one seed, on jobs where each acts.",
                width="content",
            )
        grid = st.grid(6, min_column_width=_MIN_PX, gap="small")
        for card in all_cards():
            key = f"paper-card-{card.replay}"
            with grid.cell(), st.container(border=True, height="stretch", gap=None, key=key):
                if st.button(
                    f"**{card.title}**",
                    key=f"paper/{card.replay}",
                    type="tertiary",
                    icon=":material/arrow_forward:",
                    icon_position="right",
                    width="stretch",
                ):
                    clicked = card
                st.html(_card_html(card))
    return None if clicked is None else cards.card_study(clicked)


def _card_html(card: ReplayCard) -> str:
    """Return the figures and the note of a card as HTML."""
    seeds = sorted({row["seeds"] for one in card.figures for row in cards.figure_rows(one)})
    counts = " and ".join(map(str, seeds))
    figures = "".join(map(_figure_html, card.figures))
    return (
        f'<div class="ty-paper">{figures}<small>{html.escape(card.note)} {counts} seeds.</small>'
        "</div>"
    )


def _figure_html(figure: CardFigure) -> str:
    """Return a figure of a card as HTML: title, published and simulated figure, verdict."""
    line = replays.card_line(figure)
    css_class, sign, verdict = _VERDICTS[line.verdict]
    return (
        f"<p>{html.escape(figure.title)}<br><span>paper {line.published}, here</span>"
        f" <b>{line.simulated}</b><br>"
        f'<i class="{css_class}">{sign} {html.escape(figure.finding or verdict)}</i>'
        f" <span>{line.detail}</span></p>"
    )

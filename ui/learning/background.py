"""The tabs of the glossary and of the limits of the model: texts of the documentation, and what
replays that were run here say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd
import streamlit as st

from trainyard.labs.lessons import glossary
from trainyard.labs.replays.reading import load, names, papers
from trainyard.views import replays
from ui import url_params, words
from ui.learning import replay_tab as learn

WORD: Final = "word"
"""Parameter of the address: what is looked for in the glossary."""
LIMITS: Final = (
    ("background/model.md", "What is not simulated", "Not modelled"),
    ("background/trust.md", "What limits any answer", "Assumed"),
    ("background/trust.md", "Our reading", "What “our reading” means"),
)
"""Page and section of the documentation, and what it is called here."""
FOUND: Final = (
    ("background/heterogeneous.md", "What the replays found", "Policies for several GPU types"),
    ("background/cpu-and-gpu.md", "What the replays found", "Workers, servers, CPUs and GPUs"),
    ("background/elastic.md", "What to expect", "Elastic policies"),
)
MORE: Final = (
    ("background/heterogeneous.md", "Limits", "Limits of the policies for several GPU types"),
    ("background/cpu-and-gpu.md", "Limits", "Limits of workers and servers"),
)


def words_of_the_field() -> None:
    """Draw the glossary."""
    st.session_state["glossary_word"] = url_params.get(WORD)
    wanted = st.text_input(
        "Look for",
        key="glossary_word",
        on_change=_look,
        placeholder="gang, wait, preemption …",
        width=360,
        max_chars=60,
    )
    found = glossary.find(wanted)
    if not found:
        st.info(f"No word contains “{words.plain(wanted)}”.", icon=":material/search_off:")
    for one in found:
        also = f" ({one.also})" if one.also else ""
        title, text = glossary.whole(one.page)
        with st.container(horizontal=True, gap="xsmall"):
            st.markdown(f"**{one.term}**{also}  \n{one.text}")
            if st.button(
                f"More: {title}",
                key=f"more/{one.term}",
                type="tertiary",
                help=f"From docs/{one.page}",
            ):
                st.dialog(title, width="large")(st.markdown)(text)


def _look() -> None:
    url_params.put(WORD, st.session_state["glossary_word"].strip())


def limits() -> None:
    """Draw what the model leaves out, what it assumes, what does not come out as published, and the
    sources.
    """
    st.markdown("What a simulation cannot tell you, in the words of the documentation.")
    _sections(LIMITS)
    st.subheader("Published claims, and what comes out here", anchor=False)
    st.markdown(
        "A replay repeats a published comparison. These are the findings; the tab of replays runs"
        " any of them again."
    )
    _folded(FOUND)
    with st.expander(
        "Figures outside their band, in replays that were run on this server",
        key="limits_bands",
        on_change="rerun",
    ) as box:
        if box.open:
            _outside()
    _folded(MORE)
    st.subheader("Sources", anchor=False)
    lines = [
        f"- {words.plain(one.authors)}: [{words.plain(one.title)}]({one.link}),"
        f" {words.plain(one.venue)} {one.year}"
        for one in papers()
    ]
    st.markdown("\n".join(lines))


def _sections(parts: Sequence[tuple[str, str, str]]) -> None:
    for page, heading, title in parts:
        st.subheader(title, anchor=False)
        st.markdown(glossary.section(page, heading))


def _folded(parts: Sequence[tuple[str, str, str]]) -> None:
    for page, heading, title in parts:
        with st.expander(title):
            st.markdown(glossary.section(page, heading))


def _outside() -> None:
    """Draw the claims whose simulated figure lies outside its band, of every replay that was run
    with its own number of seeds.
    """
    ran, rows = 0, []
    for name in names():
        replay = load(name)
        run = learn.ended_replay((name, replay.seeds))
        if run is None or run.state != "done":
            continue
        ran += 1
        rows += [
            {
                "Replay": replay.title,
                "Figure": replay.label(row.claim),
                "Published": row.claim.published_text,
                "Simulated": replays.number(row.claim.figure, row.found.value),
            }
            for row in run.rows()
            if row.verdict == "out"
        ]
    st.caption(
        f"{ran} of {words.plural(len(names()), 'replay')} were run here with their own number of"
        " seeds. Outside: the whole interval is. A figure outside its band is a result, not a"
        " fault."
    )
    if rows:
        st.dataframe(pd.DataFrame(rows), hide_index=True)
    elif ran:
        st.markdown("None of their figures lies outside its band.")

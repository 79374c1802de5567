"""The tabs "Glossary" and "Limits of the model" of Learn, from the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd
import streamlit as st

from trainyard import documentation
from trainyard.labs.lessons import glossary
from trainyard.labs.replays.reading import load, names, papers
from trainyard.views import replays
from ui import url_params, words
from ui.learning import replay_tab as learn

WORD: Final = "word"
"""URL parameter: search text of the glossary."""
LIMITS: Final = (
    ("background/model.md", "What is not simulated", "Not modeled"),
    ("background/trust.md", "What limits any answer", "What limits any result"),
    ("background/trust.md", "Our reading", "What “our reading” means"),
)
"""Page and section of the documentation, and title on the page."""
FINDINGS: Final = (
    ("background/heterogeneous.md", "What the replays found", "Policies for several GPU types"),
    ("background/cpu-and-gpu.md", "What the replays found", "Workers, servers, CPUs and GPUs"),
    ("background/elastic.md", "What to expect", "Elastic policies"),
)
MORE: Final = (
    ("background/heterogeneous.md", "Limits", "Limits of the policies for several GPU types"),
    ("background/cpu-and-gpu.md", "Limits", "Limits of workers and servers"),
)


def draw_glossary() -> None:
    """Draw the search field, the matching entries, and a link to each one's page."""
    st.session_state["glossary_word"] = url_params.get(WORD)
    search = st.text_input(
        "Search",
        key="glossary_word",
        on_change=_on_search,
        placeholder="gang, wait, preemption …",
        width=360,
        max_chars=60,
    )
    entries = glossary.find_terms(search)
    if not entries:
        st.info(f"No entry contains “{words.plain(search)}”.", icon=":material/search_off:")
    for entry in entries:
        synonyms = f" ({entry.also})" if entry.also else ""
        with st.container(horizontal=True, gap="xsmall"):
            st.markdown(f"**{entry.term}**{synonyms}  \n{entry.text}", width=760)
            st.page_link(
                "pages/docs.py",
                label=f"Docs: {documentation.read_page(entry.page).title}",
                query_params={documentation.PAGE: entry.page},
            )


def _on_search() -> None:
    """Write the search text into the URL."""
    url_params.set_param(WORD, st.session_state["glossary_word"].strip())


def draw_limits() -> None:
    """Draw what the model omits and assumes, findings of replays, and the papers."""
    st.markdown("What a simulation cannot show, from the documentation.")
    _draw_sections(LIMITS)
    st.subheader("Published claims and simulated results", anchor=False)
    st.markdown(
        "Replays repeat published comparisons. These are their findings; rerun any of them in the"
        " tab Paper replays."
    )
    _draw_folded(FINDINGS)
    with st.expander(
        "Results outside the expected range, in replays run on this server",
        key="limits_bands",
        on_change="rerun",
    ) as box:
        if box.open:
            _draw_outside()
    _draw_folded(MORE)
    st.subheader("Sources", anchor=False)
    lines = [
        f"- {words.plain(paper.authors)}: [{words.plain(paper.title)}]({paper.link}),"
        f" {words.plain(paper.venue)}, {paper.year}"
        for paper in papers()
    ]
    st.markdown("\n".join(lines))


def _draw_sections(parts: Sequence[tuple[str, str, str]]) -> None:
    """Draw sections of the documentation, each given as (page, heading, title)."""
    for page, heading, title in parts:
        st.subheader(title, anchor=False)
        st.markdown(documentation.read_section(page, heading))


def _draw_folded(parts: Sequence[tuple[str, str, str]]) -> None:
    """Draw sections of the documentation in expanders: (page, heading, title) each."""
    for page, heading, title in parts:
        with st.expander(title):
            st.markdown(documentation.read_section(page, heading))


def _draw_outside() -> None:
    """Draw a table of claims outside the expected range, over replays finished on this server."""
    finished_count, rows = 0, []
    for name in names():
        replay = load(name)
        run = learn.ended_replay((name, replay.seeds))
        if run is None or run.state != "done":
            continue
        finished_count += 1
        rows += [
            {
                "Replay": replay.title,
                "Figure": replay.label(row.claim),
                "Published": row.claim.published_text,
                "Simulated": replays.number(row.claim.figure, row.pooled.value),
            }
            for row in run.rows()
            if row.verdict == "out"
        ]
    st.caption(
        f"{finished_count} of {words.plural(len(names()), 'replay')} have run here with their usual"
        " seeds. Outside: the whole interval is outside the range. This is a finding, not an error."
    )
    if rows:
        st.dataframe(pd.DataFrame(rows), hide_index=True)
    elif finished_count:
        st.markdown("None of their results is outside its range.")

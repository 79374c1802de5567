"""Docs: the documentation, a page at a time."""

from __future__ import annotations

import streamlit as st

from sim.errors import TrainyardError
from trainyard import documentation
from ui import words
from ui.layout import run_page


def body() -> None:
    """Draw the list of pages and the page named in the URL."""
    groups = documentation.contents()
    current = st.query_params.get(documentation.PAGE) or next(iter(next(iter(groups.values()))))
    with st.container(horizontal=True, key="docs", gap="large"):
        with st.container(key="docs_list", gap=None):
            for group, pages in groups.items():
                st.caption(group)
                for page, title in pages.items():
                    if page == current:
                        st.markdown(f"**{title}**")
                    else:
                        st.page_link(
                            "pages/docs.py",
                            label=title,
                            query_params={documentation.PAGE: page},
                            width="stretch",
                        )
        with st.container(key="docs_text"):
            _draw_page(current)


def _draw_page(name: str) -> None:
    """Draw a page with its pictures, or that there is none of this name."""
    try:
        page = documentation.read_page(name)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    st.title(page.title, anchor=False)
    for text, picture in page.parts:
        if picture is not None:
            st.image(picture, caption=text)
        elif text.strip():
            st.markdown(text)


if __name__ == "__main__":
    run_page("docs", body)

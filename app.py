"""Entry point: navigation, scenario bar, and the scenario in the URL."""

from __future__ import annotations

if __name__ == "__main__":
    # Worker processes import this file under another name; the guard keeps them from running the
    # app and loading Streamlit.
    from ui.layout import run_app

    run_app()

if __name__ == "app":
    # `streamlit run` serves this object; its pages run this file as `__main__`.
    import streamlit as st

    from ui.headers import MIDDLEWARE

    app = st.App(__file__, middleware=MIDDLEWARE)

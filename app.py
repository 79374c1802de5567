"""The app's entry: navigation, the scenario from and to the address, its bar; nothing else."""

from __future__ import annotations

if __name__ == "__main__":
    # A worker process imports this file under another name; behind the guard it neither runs the
    # app nor loads Streamlit.
    from ui.layout import main

    main()

if __name__ == "app":
    # `streamlit run` finds this and serves it; its pages are runs of this file as `__main__`.
    import streamlit as st

    from ui.headers import MIDDLEWARE

    app = st.App(__file__, middleware=MIDDLEWARE)

"""Compare: the policies side by side, with the evidence."""

from __future__ import annotations

from ui import comparison, job_drawer, presenting, state, url_params
from ui.comparing import screen
from ui.layout import page

_ABOUT = (
    "This page will show the policies side by side: what they cost and gain, jobs waiting and GPUs"
    " busy over time, and how long jobs take."
)


def body() -> None:
    """Draw the page."""
    session = state.session()
    if screen.loading(session):
        return
    compared = comparison.opened(session, "Compare", _ABOUT, listed=True)
    if compared is None:
        return
    # First, so that it opens before all else is drawn, and what it has to say stands on top.
    job_drawer.draw(compared)
    screen.draw(compared)
    if url_params.presented():
        presenting.draw(compared)


if __name__ == "__main__":
    page("compare", body)

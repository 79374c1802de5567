"""Compare: the policies side by side, with headline, charts, ledger and tabs."""

from __future__ import annotations

from ui import comparison, job_drawer, presentation, state, url_params
from ui.comparing import screen
from ui.layout import run_page

_ABOUT = (
    "This page will compare the policies: costs and gains, waiting jobs and busy GPUs over time,"
    " and completion times."
)


def body() -> None:
    """Draw Compare: loading view or job drawer, results and, if requested, the presentation."""
    session = state.session()
    if screen.draw_loading(session):
        return
    compared = comparison.compare_displayed(session, "Compare", _ABOUT, has_ledger=True)
    if compared is None:
        return
    # First, so that the drawer opens before the page is drawn, and its warnings are on top.
    job_drawer.draw(compared)
    screen.draw(compared)
    if url_params.is_presenting():
        presentation.draw(compared)


if __name__ == "__main__":
    run_page("compare", body)

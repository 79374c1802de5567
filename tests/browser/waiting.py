"""What browser tests wait for: a state of the page, never a time."""

from __future__ import annotations

from playwright.sync_api import Page

_IDLE = (
    "() => !document.querySelector('[data-testid=stApp][data-test-script-state=running],"
    " [data-testid=stSkeleton]')"
)


def ready(page: Page) -> None:
    """Wait until the frame of the page is there, with its name marked in the navigation."""
    page.locator(".st-key-navigation a[aria-current=page]").wait_for(state="attached")


def idle(page: Page) -> None:
    """Wait until the script has run to its end and everything is drawn."""
    page.wait_for_function(_IDLE)

"""Security headers of every HTTP response."""

from __future__ import annotations

from typing import Any, Final

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        # Streamlit and Plotly style and script their pages inline, and compile expressions.
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "media-src 'self' data: blob:",
        "connect-src 'self' ws: wss: data: blob:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Content-Security-Policy": _POLICY,
}
"""Header name -> value: pages load nothing from other sites and cannot be framed by them."""


class SecurityHeaders:
    """Adds `HEADERS` to the responses of an ASGI app.

    Parameters
    ----------
    app : ASGIApp
        The wrapped app.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = [(name.lower().encode(), text.encode()) for name, text in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app, and add the security headers to its response."""

        async def send_with_headers(message: Message) -> None:
            """Send a message; the start of a response gets the security headers."""
            if message["type"] == "http.response.start":
                names = {name for name, _ in self._headers}
                own = [pair for pair in message["headers"] if pair[0].lower() not in names]
                message = {**message, "headers": [*own, *self._headers]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


MIDDLEWARE: Final[list[Any]] = [Middleware(SecurityHeaders)]

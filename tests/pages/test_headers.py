"""The headers of the server's answers, without a server."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from streamlit.web.server.app_discovery import discover_asgi_app

from tests.pages.conftest import ROOT
from ui.headers import HEADERS, SecurityHeaders


def run_to_end(answer: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits for nothing, also where a browser's event loop is running."""
    with pytest.raises(StopIteration):
        answer.send(None)


def answered(kind: str, *own: tuple[bytes, bytes]) -> list[dict[str, Any]]:
    """What an app sends that answers with headers of its own."""
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": kind, "status": 200, "headers": list(own)})
        await send({"type": "http.response.body", "body": b"x"})

    async def send(message: Any) -> None:
        sent.append(message)

    run_to_end(SecurityHeaders(app)({"type": "http"}, None, send))  # type: ignore[arg-type]
    return sent


def test_answers_get_each_header_once_and_keep_their_own() -> None:
    first, body = answered(
        "http.response.start", (b"X-Frame-Options", b"ALLOW"), (b"etag", b"1"), (b"etag", b"2")
    )
    names = [name.decode().lower() for name, _ in first["headers"]]
    assert sorted(names) == sorted(["etag", "etag", *map(str.lower, HEADERS)])
    assert dict(first["headers"])[b"x-frame-options"] == b"DENY"
    assert body == {"type": "http.response.body", "body": b"x"}


def test_other_messages_pass_as_they_are() -> None:
    assert answered("websocket.accept")[0] == {
        "type": "websocket.accept",
        "status": 200,
        "headers": [],
    }


@pytest.mark.parametrize("part", ["frame-ancestors 'none'", "object-src 'none'", "base-uri 'self'"])
def test_the_policy_allows_no_other_site(part: str) -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert part in policy.split("; ")
    assert "*" not in policy
    assert "http" not in policy


def test_the_command_that_starts_streamlit_finds_the_app() -> None:
    assert discover_asgi_app(ROOT / "app.py").import_string == "app:app"

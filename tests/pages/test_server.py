from __future__ import annotations

from collections.abc import Callable

import pytest

from ui import server


def test_only_a_session_that_held_something_large_costs_those_that_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes of an upload count when its session leaves; those of traces with the last session."""
    sizes: list[int] = []
    here: dict[str, Callable[[], int]] = {
        "ann": lambda: 0,
        "bob": lambda: 40_000_000,
        "carl": lambda: 5,
    }
    monkeypatch.setattr(server, "_SESSIONS", here)
    monkeypatch.setattr(server, "clear_cache", lambda: 1_000_000)
    monkeypatch.setattr(server, "release_memory", sizes.append)
    for name in ("ann", "bob", "nobody", "carl"):
        server._on_session_end(name)
    assert sizes == [0, 40_000_000, 0, 1_000_005]

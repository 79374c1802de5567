from __future__ import annotations

import pytest

from trainyard.views.charts import literal, visible


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("job 7", "job 7"),
        ("nul\x00esc\x1b[31m", "nul␀esc␛[31m"),
        ("a\tb\r\nc\u2028d", "a b c d"),
        ("\u202egnp.exe\u2066\u200f", "�gnp.exe��"),
        ("\x7f\x9f\ud800", "���"),
        ("👩\u200d🚀 Zoë", "👩\u200d🚀 Zoë"),
        ("", ""),
    ],
)
def test_everything_in_a_name_can_be_seen(name: str, shown: str) -> None:
    assert visible(name) == shown


def test_a_long_name_is_cut_and_says_so() -> None:
    assert visible("x" * 80) == "x" * 80
    assert visible("x" * 10_000) == "x" * 79 + "…"
    assert visible("abcdef", 4) == "abc…"
    assert visible(f"job {'x' * 10_000} is late", 500) == f"job {'x' * 119}… is late"
    assert visible("ab " * 1000, 500) == ("ab " * 1000)[:499] + "…"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("<script>", "&lt;script&gt;"),
        ("%{x}", "%&#123;x}"),
        ("$x$", "&#36;x&#36;"),
        ("a&b", "a&amp;b"),
        ("<" * 100, "&lt;" * 79 + "…"),
    ],
)
def test_plotly_takes_nothing_in_a_name_for_markup(name: str, shown: str) -> None:
    assert literal(name) == shown

"""One word for one thing: words that were given up are in no text that users read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from scripts.size import PRODUCT, ROOT, python_files, syntax_nodes

# Pattern -> the word to use instead, see docs/reference/glossary.md. Add a word once it is gone.
GIVEN_UP = {
    r"displac": "preempt",
    r"g(ives?|iving|ave) way": "preempt",
    r"evict(s|ed|ing)? (by|for) (another|other) jobs?": "preempt",
    r"(inner|simpler) allocator|allocators? inside": "inner policy, simpler policy",
    r"(names no|choose an) allocator": "policy",
    r"counted as": "assumption",
    r"part that is seen": "zoom window",
    r"what was done": "recorded schedule",
    r"\bwish(es)?\b": "request",
    r"take it home": "export configuration",
    r"policies inside others": "wrappers",
    r"licence": "license",
    r"in its stead": "instead",
    r"for ever\b": "forever",
    r"says by itself|in its luggage|is not underlined|becomes so large in your scenario": "",
}
"""An empty word stands for a sentence that was rewritten."""


def read_texts() -> Iterator[tuple[str, str]]:
    """Yield place and text of each string of the product, and of each line of docs and lessons."""
    for path in python_files(*PRODUCT):
        nodes = syntax_nodes(path)
        # A string that is a statement documents the code.
        documents = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and id(node) not in documents:
                text = str(node.value)
                if " " in text:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", text
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for path in [*pages, *(ROOT / "trainyard" / "labs").rglob("*.toml")]:
        if "decisions" not in path.parts:
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                yield f"{path.relative_to(ROOT)}:{number}", line


TEXTS = tuple(read_texts())


@pytest.mark.parametrize("pattern", GIVEN_UP)
def test_words_given_up_are_in_no_text_that_users_read(pattern: str) -> None:
    found = re.compile(pattern, re.IGNORECASE)
    assert [place for place, text in TEXTS if found.search(text)] == [], GIVEN_UP[pattern]


def test_texts_of_app_command_line_and_docs_are_read() -> None:
    places = {place.split("/")[0].split(":")[0] for place, _ in TEXTS}
    assert places >= {"README.md", "docs", "ui", "pages", "trainyard", "sim", "allocators"}
    assert len(TEXTS) > 5_000

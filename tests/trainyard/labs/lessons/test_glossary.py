from __future__ import annotations

import pytest

from trainyard.documentation import FOLDER
from trainyard.labs.lessons import glossary


def test_the_page_of_the_documentation_is_the_list_of_the_app() -> None:
    path = FOLDER / "reference" / "glossary.md"
    assert path.read_text(encoding="utf-8") == glossary.markdown(), (
        "write trainyard.labs.lessons.glossary.markdown() into docs/reference/glossary.md"
    )


def test_entries_are_short_and_lead_to_pages_that_are_there() -> None:
    assert len(glossary.ENTRIES) >= 35
    assert len({one.term.lower() for one in glossary.ENTRIES}) == len(glossary.ENTRIES)
    for one in glossary.ENTRIES:
        assert (FOLDER / one.page).is_file(), one.page
        assert 1 <= one.text.count(". ") + one.text.endswith(".") <= 2, one.term
        assert len(one.text) <= 170, one.term


@pytest.mark.parametrize(
    ("wanted", "first"),
    [("gang", "Gang"), ("JCT", "Completion time"), ("  scheduler ", "Policy"), ("wait", "Wait")],
)
def test_a_word_is_found_by_its_name_first(wanted: str, first: str) -> None:
    assert glossary.find_terms(wanted)[0].term == first


def test_nothing_is_found_of_nonsense_and_signs_are_no_patterns() -> None:
    assert glossary.find_terms("qqq") == ()
    assert glossary.find_terms("(*") == ()
    assert len(glossary.find_terms("")) == len(glossary.ENTRIES)

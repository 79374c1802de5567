from __future__ import annotations

import pytest

from sim.errors import TrainyardError
from trainyard.labs.lessons import glossary
from trainyard.labs.lessons.glossary import FOLDER
from ui.learning import reference_tabs


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


def test_a_section_is_the_text_of_the_documentation_without_links_that_lead_nowhere() -> None:
    text = glossary.read_section("background/model.md", "What is not simulated")
    assert "- Sharing one GPU between jobs." in text
    assert text in (FOLDER / "background" / "model.md").read_text(encoding="utf-8")
    linked = glossary.read_section("background/model.md", "What is simulated")
    assert "models.md" not in linked
    assert "](http" not in linked


def test_a_whole_page_has_its_title_and_no_links_that_lead_nowhere() -> None:
    for one in glossary.ENTRIES:
        title, text = glossary.read_page(one.page)
        assert title
        assert not title.startswith("#")
        assert "](../" not in text
    assert glossary.read_page("reference/metrics.md")[0] == "Metrics"


def test_every_section_that_the_limits_show_is_there() -> None:
    parts = (*reference_tabs.LIMITS, *reference_tabs.FINDINGS, *reference_tabs.MORE)
    assert all(glossary.read_section(page, heading) for page, heading, _ in parts)


def test_what_is_missing_is_a_sentence() -> None:
    with pytest.raises(TrainyardError, match=r"docs/background/model\.md has no section 'Nothing'"):
        glossary.read_section("background/model.md", "Nothing")
    with pytest.raises(TrainyardError, match=r"docs/none\.md cannot be read"):
        glossary.read_section("none.md", "Nothing")


def test_every_word_leads_to_a_page_with_its_title() -> None:
    for one in glossary.ENTRIES:
        title, text = glossary.read_page(one.page)
        assert title
        assert not title.startswith("#")
        assert ".md)" not in text, one.page
    assert glossary.read_page("reference/metrics.md")[0] == "Metrics"

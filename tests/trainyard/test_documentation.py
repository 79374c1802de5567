"""The documentation as the app shows it."""

from __future__ import annotations

import pytest

from sim.errors import TrainyardError
from trainyard import documentation
from trainyard.documentation import FOLDER
from trainyard.labs.lessons import glossary
from ui.learning import reference_tabs


def test_the_contents_are_the_groups_of_the_first_page() -> None:
    contents = documentation.contents()
    assert list(contents) == ["Tutorials", "How to", "Reference", "Background"]
    assert contents["Tutorials"]["tutorial/first-comparison.md"] == "Your first comparison"
    listed = [page for pages in contents.values() for page in pages]
    assert len(set(listed)) == len(listed)
    for page in listed:
        assert documentation.read_page(page).title


def test_links_lead_to_pages_of_the_app_and_pictures_stand_alone() -> None:
    page = documentation.read_page("tutorial/first-comparison.md")
    assert page.title == "Your first comparison"
    _, (caption, picture), (text, _), *_ = page.parts
    assert picture is not None
    assert picture.is_file()
    assert "six figures" in caption
    assert text.strip().startswith("In ten minutes")
    whole = "".join(text for text, _ in page.parts)
    assert "](docs?doc=background/trust.md)" in whole
    assert "](../" not in whole


def test_every_page_and_picture_that_is_linked_is_there() -> None:
    for path in FOLDER.rglob("*.md"):
        page = documentation.read_page(path.relative_to(FOLDER).as_posix())
        for text, picture in page.parts:
            assert "](../" not in text
            assert picture is None or picture.is_file()


def test_a_section_has_no_links_to_other_pages() -> None:
    text = documentation.read_section("background/model.md", "What is not simulated")
    assert "- Sharing one GPU between jobs." in text
    assert text in (FOLDER / "background" / "model.md").read_text(encoding="utf-8")
    linked = documentation.read_section("background/model.md", "What is simulated")
    assert "models.md" not in linked


def test_every_section_that_the_limits_show_is_there() -> None:
    parts = (*reference_tabs.LIMITS, *reference_tabs.FINDINGS, *reference_tabs.MORE)
    assert all(documentation.read_section(page, heading) for page, heading, _ in parts)


def test_every_word_leads_to_a_page() -> None:
    for entry in glossary.ENTRIES:
        assert documentation.read_page(entry.page).title


@pytest.mark.parametrize(
    "page", ["none.md", "../README.md", "/etc/passwd", "a\0b.md", "images/compare.png", ""]
)
def test_what_is_no_page_is_a_sentence(page: str) -> None:
    with pytest.raises(TrainyardError, match="The documentation has no page"):
        documentation.read_page(page)


def test_a_section_that_is_missing_is_a_sentence() -> None:
    with pytest.raises(TrainyardError, match=r"docs/background/model\.md has no section 'Nothing'"):
        documentation.read_section("background/model.md", "Nothing")

"""Docs in the app: the list of pages, a page, and an address of none."""

from __future__ import annotations

from tests.pages.conftest import Open, sound, texts


def test_docs_open_with_the_first_tutorial_and_follow_the_address(visit: Open) -> None:
    app = visit("docs")
    assert [title.value for title in app.title] == ["Your first comparison"]
    titles = [link.proto.label for link in app.main.get("page_link")]
    assert "Import a trace" in titles
    # The page that is open is no link.
    assert "Your first comparison" not in titles
    app.query_params["doc"] = "how-to/import-a-trace.md"
    app.run()
    sound(app)
    assert [title.value for title in app.title] == ["Import a trace"]
    assert "](docs?doc=reference/native-schema.md)" in texts(app)


def test_an_address_of_no_page_is_a_sentence(visit: Open) -> None:
    app = visit("docs")
    app.query_params["doc"] = "../../etc/<b>.md"
    app.run()
    sound(app)
    assert ["The documentation has no page" in error.value for error in app.error] == [True]
    assert "Import a trace" in [link.proto.label for link in app.main.get("page_link")]

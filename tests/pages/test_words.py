from __future__ import annotations

import pytest

from tests.pages.conftest import Open
from trainyard.study.study import Study
from ui import words

HOSTILE = "<img src=x onerror=alert(1)> **b** $x$ `y` _q_ :smile: [a](b)"


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("trace.csv: line 12 has 3 of 4 cells.", "trace.csv: line 12 has 3 of 4 cells."),
        ("job_id, num_gpus (2-4)", "job_id, num_gpus (2-4)"),
        ("**b** _q_ `y`", "\\*\\*b\\*\\* \\_q\\_ \\`y\\`"),
        ("<img> [a](b) $x$ &amp; ~~c~~", "\\<img\\> \\[a\\](b) \\$x\\$ \\&amp; \\~\\~c\\~\\~"),
        (":red[x] 4x8:v100", "\\:red\\[x\\] 4x8\\:v100"),
        (":smile: :+1: :material/home:", ":\u2060smile: :\u2060+1: :\u2060material/home:"),
        ("https://a.b www.a.b u@a.b", "https:\u2060//a.b www\u2060.a.b u@\u2060a.b"),
        ("a -- b -> c", "a -\u2060- b -\u2060\\> c"),
        ("a\nb\t c", "a b c"),
        ("# title", "\\# title"),
        ("1. one", "1\\. one"),
        ("- item", "\\- item"),
        ("\\", "\\\\"),
        ("\u202egnp\x00", "�gnp␀"),
        (f"job {'x' * 10_000} is late", f"job {'x' * 119}… is late"),
        (f"{'x' * 100} " * 30, (f"{'x' * 100} " * 30)[:1999] + "…"),
        ("", ""),
    ],
)
def test_text_from_outside_becomes_markdown_that_shows_it(text: str, markdown: str) -> None:
    assert words.plain(text) == markdown


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "job", "1 job"),
        (0, "job", "0 jobs"),
        (1200, "row", "1,200 rows"),
        (2, "policy", "2 policies"),
        (1, "policy", "1 policy"),
    ],
)
def test_numbers_with_their_nouns(number: int, noun: str, text: str) -> None:
    assert words.plural(number, noun) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-0.41, "−41\u202f%"),
        (0.095, "+9.5\u202f%"),
        (0.0, "±0\u202f%"),
        (3.0, "+300\u202f%"),
        (3.3, "4.3 times"),
        (89.3, "90 times"),
        (1999.0, "2,000 times"),
    ],
)
def test_changes_are_told_in_per_cent_and_large_ones_as_factors(value: float, text: str) -> None:
    assert words.change(value) == text


def test_names_from_a_file_are_escaped_in_bar_and_page(visit: Open) -> None:
    app = visit("trace")
    content = b"job_id,submit_time_s,num_gpus,duration_s\na,0,1,60\nb,9,1,60\n"
    app.file_uploader[0].set_value((f"{HOSTILE}.csv", content, "text/csv")).run()
    shown = words.plain(HOSTILE)
    assert shown in app.title[0].value
    assert shown in next(item.value for item in app.markdown if " used + " in item.value)
    for item in [*app.title, *app.markdown, *app.caption, *app.error, *app.warning]:
        assert HOSTILE not in item.value


def test_the_sentence_on_a_file_that_was_refused_can_be_dismissed(visit: Open) -> None:
    app = visit("trace")
    field = app.file_uploader[0]
    field.set_value(("paper.csv", b"%PDF-1.7", "text/csv")).run()
    assert len(app.error) == 1
    app.button(key="dismiss_file").click().run()
    assert not app.error


def test_a_cluster_of_one_node_is_told_in_the_singular(visit: Open, tiny: Study) -> None:
    app = visit("cluster", tiny)
    app.text_input(key="cluster_spec").set_value("1x1:v100").run()
    app.button(key="use_spec").click().run()
    chart = app.get("plotly_chart")[0].proto
    assert "1 nodes" not in str(chart)
    assert "1 GPUs" not in str(chart)

from __future__ import annotations

import io
import re
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from tests.pages import hostile
from tests.pages.conftest import FakePool, Open, finish, sound
from trainyard.results import outcomes
from ui import figure
from ui.comparing import exports

PAGES = ("start", "trace", "cluster", "policies", "compare", "explore", "plan", "learn")


@pytest.mark.parametrize("name", PAGES)
def test_names_from_outside_are_shown_and_nothing_else(
    name: str, visit: Open, pool: FakePool
) -> None:
    study = hostile.study(pool.store)
    finish(pool, study)
    app = visit(name, study)
    sound(app)
    assert hostile.harms(app) == []
    # All but Learn name the trace, so the check has something to look at.
    assert name == "learn" or any("hacked" in text for _, _, text in hostile.texts(app))


@pytest.mark.parametrize(
    "line",
    [
        "st.markdown('<script>window.hacked=1</script>')",
        "st.html('<b onclick=window.hacked=1>x</b>')",
        "st.caption('**b** x')",
        "st.selectbox('Job', ['\\u202egnp'])",
        "st.error('x' * 10_000)",
        "st.plotly_chart({'data': [{'type': 'scatter', 'name': '<script>'}]})",
    ],
)
def test_the_check_finds_what_is_not_escaped(line: str) -> None:
    app = AppTest.from_string(f"import streamlit as st\n{line}\n").run()
    assert len(hostile.harms(app)) == 1


def test_scripts_write_text() -> None:
    markup = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc")
    scripts = [*Path(figure.__file__).parent.rglob("*.js")]
    assert len(scripts) > 2
    assert not [one.name for one in scripts if markup.search(one.read_text(encoding="utf-8"))]


def test_tables_show_names_that_can_be_read() -> None:
    rows = pd.DataFrame(
        [["\u202egnp", 1.5, None], ["=1+1", 2.5, "nul\x00"]],
        columns=["Job", "x" * 10_000, "x" * 10_001],
    )
    shown = figure.readable(rows)
    cut = "x" * 79 + "…"
    assert list(shown.columns) == ["Job", f"{cut} (2)", f"{cut} (3)"]
    assert shown["Job"].tolist() == ["�gnp", "=1+1"]
    assert shown[f"{cut} (2)"].tolist() == [1.5, 2.5]
    assert shown[f"{cut} (3)"].iloc[1] == "nul␀"
    assert rows["Job"].iloc[0] == "\u202egnp"


def test_files_hold_names_exactly_but_for_formulas(pool: FakePool) -> None:
    study = hostile.study(pool.store)
    finish(pool, study)
    shown = outcomes.gather(study, pool.store)
    for name in ("jobs", "segments", "decisions"):
        text, binary = exports.rows_csv(shown, name), exports.rows_parquet(shown, name)
        exact = pd.read_parquet(io.BytesIO(binary))
        assert len(exact) > 0
        assert sum(text.decode().count(policy) for policy in shown.titles) >= len(exact)
        if "job_id" in exact:
            assert set(exact["job_id"]) == set(hostile.NAMES)
            read = pd.read_csv(io.BytesIO(text), keep_default_na=False, lineterminator="\n")
            assert "'=1+1" in set(read["job_id"])
            assert {"x" * 10_000, hostile.SCRIPT} <= set(read["job_id"])
    assert b"&lt;script&gt;window.hacked=1&lt;/script&gt;" in exports.report_html(shown)

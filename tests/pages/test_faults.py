"""An exception anywhere on a page: our panel, and nothing of Streamlit's own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pages.conftest import FakePool, Open, broken, chip, finish, sound
from trainyard.study.study import Study
from ui import layout, state
from ui.choosing import policies
from ui.what_if import slider


def fail(*arguments: Any, **named: Any) -> None:
    raise KeyError('<b>"gone"')


@pytest.mark.parametrize(
    ("module", "name", "page"),
    [
        (policies, "draw", "policies"),
        (layout, "_draw_messages", "policies"),
        (slider, "apply_rested", "compare"),
        (state, "with_seed_and_repeats", "policies"),
    ],
    ids=["part", "frame", "fragment", "callback"],
)
def test_an_exception_shows_our_panel(
    visit: Open, tiny: Study, pool: FakePool, monkeypatch: Any, module: Any, name: str, page: str
) -> None:
    finish(pool, tiny)
    app = visit(page, tiny)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, fail)
        chip(app.number_input, "seed").set_value(5).run()
    assert not app.exception
    (panel,) = broken(app)
    for text in (
        "Something broke. Your trace is kept.",
        ">Reload</a>",
        ">Copy details</button>",
        "tests/pages/test_faults.py:",
        "KeyError: &#x27;&lt;b&gt;&quot;gone&quot;&#x27;",
    ):
        assert text in panel
    # Machine paths are nobody's business.
    assert "/site-packages/" not in panel
    assert str(layout.__file__) not in panel
    app.run()
    sound(app)

"""Your runs on Start: whose they are, what can be done with them, and what is said when the library
cannot be used.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.conftest import ROOT, FakePool, drop, finish, sound, study_of, texts
from trainyard.formatting import relative_date
from trainyard.library import archive, library
from trainyard.results.outcomes import titles
from trainyard.store import Store, files, index
from trainyard.store.rows import LibraryError
from trainyard.study.document import unpack_document
from trainyard.study.scenario import TraceSpec
from trainyard.study.size_question import SizeQuestion
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.views.charts import visible
from ui import browser_identity, server
from ui import library as listing
from ui.words import plain

ANN, BOB = "a" * 32, "b" * 32
HOSTILE = "**x** <script>alert(1)</script> [y](http://z) :red[w] \u202e"
Browse = Callable[..., AppTest]


@pytest.fixture
def browse(pool: FakePool) -> Browse:
    """Open Start in the browser that has this token, with a study in the address or none."""

    def go(token: str = ANN, study: Study | None = None) -> AppTest:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=300)
        app.session_state[browser_identity._TOKEN] = token
        if study is not None:
            app.query_params["s"] = study.pack()
        app.run()
        sound(app)
        return app

    return go


def listed(app: AppTest) -> list[str]:
    return [button.label for button in app.main.button if str(button.key).startswith("runs/open/")]


def choose(app: AppTest, *places: int) -> AppTest:
    marks = [
        str(button.key).rpartition("/")[2]
        for button in app.main.button
        if str(button.key).startswith("runs/open/")
    ]
    for at in places:
        app.checkbox(key=f"runs/{marks[at]}/chosen").check().run()
    sound(app)
    return app


def test_a_choice_outlives_a_search_and_is_taken_back_in_one_press(
    browse: Browse, pool: FakePool, tiny: Study
) -> None:
    finish(pool, tiny)
    # Opened with results, it is listed.
    app = browse(ANN, tiny)
    choose(app, 0)
    box = next(box for box in app.checkbox if str(box.key).endswith("/chosen"))
    for wanted in ("nothing like this", ""):
        app.text_input(key=listing._SEARCH).set_value(wanted).run()
        sound(app)
        assert ("1 chosen" in texts(app)) == (not wanted)
    assert app.checkbox(key=box.key).value
    press(app, "runs/none")
    assert not app.checkbox(key=box.key).value
    assert "1 chosen" not in texts(app)


def shelf(token: str) -> str:
    return hashlib.blake2b(token.encode(), digest_size=16, person=b"trainyard shelf").hexdigest()


def press(app: AppTest, key: str) -> AppTest:
    app.button(key=key).click().run()
    sound(app)
    return app


def run(app: AppTest) -> AppTest:
    """Press Run, which Start lacks."""
    return press(app.switch_page("pages/policies.py").run(), "run")


def test_a_run_is_listed_where_it_was_made_and_nowhere_else(
    browse: Browse, pool: FakePool, tiny: Study
) -> None:
    ann = browse(ANN, tiny)
    assert listed(ann) == []
    assert "Your runs" not in texts(ann)
    run(ann)
    ann.switch_page("pages/start.py").run()
    assert len(listed(ann)) == 1
    assert listed(ann)[0].endswith(" on Twelve jobs by hand")
    assert "no run is kept" in texts(ann)
    assert listed(browse(BOB)) == []
    finish(pool, tiny)
    ann.run()
    assert "Comparison · 4 runs · " in texts(ann)
    # A link with results puts it on the shelf of who opens it; one without does not.
    assert len(listed(browse(BOB, tiny))) == 1
    assert len(listed(browse(BOB, replace(tiny, repeats=2)))) == 1
    assert len(listed(browse(BOB))) == 1


def test_the_sample_of_the_server_is_listed_once_it_was_run_here(
    browse: Browse, pool: FakePool, tiny: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_study, "sample_study", lambda: tiny)
    finish(pool, tiny)
    app = browse(ANN, tiny)
    assert listed(app) == []
    press(app, "run_sample")
    assert len(listed(browse(ANN))) == 1


def test_a_run_is_put_on_the_shelf_once_not_whenever_the_page_is_drawn(
    browse: Browse, pool: FakePool, tiny: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(pool, tiny)
    calls: list[str] = []
    shelve = library.shelve

    def counted(*given: Any) -> str:
        calls.append(shelve(*given))
        return calls[-1]

    monkeypatch.setattr(library, "shelve", counted)
    app = browse(ANN, tiny)
    app.run()
    app.switch_page("pages/compare.py").run()
    sound(app)
    assert len(calls) == 1
    press(app, "run_again")
    app.run()
    assert calls == [calls[0]] * 2


def test_opening_is_the_stored_result_at_once(browse: Browse, pool: FakePool, tiny: Study) -> None:
    finish(pool, tiny)
    browse(ANN, tiny)
    app = browse(ANN)
    app.main.button(
        key=next(
            str(button.key)
            for button in app.main.button
            if str(button.key).startswith("runs/open/")
        )
    ).click().run()
    sound(app)
    assert study_of(app) == tiny
    assert "Stored result, computed" in texts(app)
    assert pool.jobs == []


def test_names_and_tags_are_shown_as_they_are_and_found_again(
    browse: Browse, pool: FakePool, tiny: Study
) -> None:
    finish(pool, tiny)
    browse(ANN, tiny)
    app = choose(browse(ANN), 0)
    app.text_input(key=_field(app, "Name")).set_value(HOSTILE)
    app.text_input(key=_field(app, "Tags")).set_value("talk, <b>, talk,  ")
    next(button for button in app.main.button if button.label == "Save").click().run()
    sound(app)
    assert listed(app) == [plain(visible(" ".join(HOSTILE.split())))]
    assert f"tags: talk, {plain('<b>')}" in texts(app)
    for search, found in (
        ("TALK comparison", 1),
        ("twelve", 1),
        ("sweep", 0),
        ("<script>", 1),
        ("%", 0),
    ):
        app.text_input(key="runs/search").set_value(search).run()
        sound(app)
        assert len(listed(app)) == found, search
    assert "contains these words" in texts(app)
    # Opened, the scenario has the name.
    app.text_input(key="runs/search").set_value("").run()
    app.main.button(
        key=next(
            str(button.key)
            for button in app.main.button
            if str(button.key).startswith("runs/open/")
        )
    ).click().run()
    assert study_of(app).base.name == " ".join(HOSTILE.split())
    assert len(listed(browse(ANN))) == 1


def _field(app: AppTest, label: str) -> Any:
    return next(box.key for box in app.main.text_input if box.label == label)


def test_two_are_compared_in_words_and_numbers(browse: Browse, pool: FakePool, tiny: Study) -> None:
    other = replace(tiny, allocators=tiny.allocators[:2], base=replace(tiny.base, seed=3))
    for study in (tiny, other):
        finish(pool, study)
        browse(ANN, study)
    app = press(choose(browse(ANN), 0, 1), "runs/compare")
    said = texts(app)
    gone = [f"− {title}" for title in titles(tiny.allocators)[2:]]
    assert f"From A to B: {'; '.join(['seed 0 → 3', *gone])}." in said
    table = next(item.proto.body for item in app.main.get("html") if "rowgroup" in item.proto.body)
    assert table.count('rowspan="2"') == len(tiny.allocators)
    assert "Average completion time" in table
    press(app, "runs/none")
    assert "From A to B" not in texts(app)


def test_deleting_takes_it_off_this_list_only(browse: Browse, pool: FakePool, tiny: Study) -> None:
    finish(pool, tiny)
    browse(ANN, tiny)
    browse(BOB, tiny)
    app = press(choose(browse(ANN), 0), "runs/delete")
    assert (
        "1 removed from your list, 0 results deleted. 4 results stay, because other entries need"
        " them." in texts(app)
    )
    assert listed(app) == []
    bob = browse(BOB)
    assert len(listed(bob)) == 1
    open_elsewhere = browse(BOB, tiny)
    app = press(choose(bob, 0), "runs/delete")
    assert "1 removed from your list, 4 results deleted." in texts(app)
    assert pool.store.entries() == []
    # Where it is open it lives on as a scenario without a result.
    open_elsewhere.switch_page("pages/compare.py").run()
    sound(open_elsewhere)
    assert "without a result" in texts(open_elsewhere)


def test_what_is_exported_is_imported_but_for_results_that_others_would_see(
    browse: Browse, pool: FakePool, tiny: Study, tmp_path: Path
) -> None:
    finish(pool, tiny)
    browse(ANN, tiny.with_name("Mine"))
    away = Store(tmp_path / "away")
    (mark,) = [one.id for one in library.items(pool.store, shelf(ANN))]
    data, damaged = archive.pack_items(pool.store, shelf(ANN), [mark])
    assert damaged == ()
    pool.store = away
    app = browse(BOB)
    drop(app, "runs.zip", data)
    sound(app)
    said = (
        "1 entry is imported from runs.zip to Your runs. 4 results of the file are computed"
        " again here, because a file cannot prove its results."
    )
    assert said in texts(app)
    assert listed(app) == ["Mine"]
    assert away.entries() == []
    assert away.index.uses(mark) == []
    for name, broken in (
        ("cut.zip", data[:-400]),
        ("bent.zip", data[:2000] + b"\0" * 40 + data[2040:]),
        ("no.zip", b"PK nonsense"),
    ):
        drop(app, name, broken)
        sound(app)
        assert [name in error.value for error in app.error] == [True]
        app.switch_page("pages/start.py").run()
        assert listed(app) == ["Mine"]


def test_an_import_cannot_make_the_server_read_its_files(
    browse: Browse, pool: FakePool, tiny: Study, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("job_id,submit_time_s,num_gpus,duration_s\nx,0,1,5\n")
    elsewhere = Store(tmp_path / "elsewhere")
    for seed in (0, 1):
        away = replace(tiny, base=replace(tiny.base, seed=seed, trace=TraceSpec(str(secret))))
        library.shelve(elsewhere, "me", away, [])
    data, _ = archive.pack_items(
        elsewhere, "me", [one.id for one in library.items(elsewhere, "me")]
    )
    app = browse(ANN)
    drop(app, "runs.zip", data)
    app = press(choose(app, 0, 1), "runs/compare")
    assert ["Load it on the Trace page" in error.value for error in app.error] == [True]
    app.main.button(
        key=next(
            str(button.key)
            for button in app.main.button
            if str(button.key).startswith("runs/open/")
        )
    ).click().run()
    sound(app)
    assert study_of(app).base.trace.source == "sample:week"


def test_a_thousand_are_twenty_at_a_time_without_a_look_at_files(
    browse: Browse, pool: FakePool, tiny: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = []
    for seed in range(1000):
        study = replace(tiny, base=replace(tiny.base, seed=seed))
        rows.append(
            (
                library.recipe_id(study),
                json.dumps(study.to_json()),
                library.default_title(study),
                f"{seed:016x}",
                shelf(ANN),
                float(seed),
            )
        )
    with sqlite3.connect(pool.store.root / "library.db") as kept:
        kept.executemany("INSERT INTO studies VALUES (?, ?, ?)", [row[:3] for row in rows])
        kept.executemany("INSERT INTO uses VALUES (?, ?)", [(row[0], row[3]) for row in rows])
        kept.executemany(
            "INSERT INTO shelf VALUES (?, ?, '', '', ?)", [(row[4], row[0], row[5]) for row in rows]
        )
    kept.close()

    def refuse(*_: object) -> None:
        raise AssertionError("a file was read")

    for name in ("read", "sizes", "walk"):
        monkeypatch.setattr(files.Folder, name, refuse)
    app, recipes, read = browse(ANN), list[dict[str, Any]](), library.read_recipe
    monkeypatch.setattr(library, "read_recipe", lambda one: recipes.append(one) or read(one))
    app.run()
    sound(app)
    assert len(listed(app)) == 20
    # Of the page's runs, and of those that they were made from.
    assert len(recipes) <= 2 * 20
    assert "1,000 in all" in texts(app)
    app.session_state["runs/page/50"] = 50
    app.run()
    sound(app)
    assert len(listed(app)) == 20


def test_a_plan_is_opened_where_plans_are_made(browse: Browse, pool: FakePool, tiny: Study) -> None:
    asked = SizeQuestion(
        replace(tiny, allocators=tiny.allocators[:2]), (0,), (1,), (4,), limit=1200.0
    )
    mark = library.shelve(pool.store, shelf(ANN), asked, ["aa" * 8])
    app = browse(ANN)
    assert "Plan · no run is kept · " in texts(app)
    press(app, f"runs/open/{mark}")
    assert library.read_recipe(unpack_document(_one(app.query_params["q"]))) == asked


def _one(value: Any) -> str:
    return str(value if isinstance(value, str) else value[0])


def test_what_this_version_cannot_read_is_listed_and_refused(
    browse: Browse, pool: FakePool
) -> None:
    pool.store.index.shelve(shelf(ANN), "bb" * 8, {"kind": "later"}, "From a later version", [])
    app = press(browse(ANN), f"runs/open/{'bb' * 8}")
    assert "Later · " in texts(app)
    assert len(app.error) == 1


@pytest.mark.parametrize("page", ["start", "compare", "trace"])
def test_a_server_on_a_damaged_library_says_so_on_every_page(
    browse: Browse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "library.db").write_bytes(b"no database " * 1000)
    monkeypatch.setattr(server, "pool", lambda: FakePool(Store(tmp_path / "bad")))
    app = browse(ANN)
    if page != "start":
        app.switch_page(f"pages/{page}.py").run()
    assert not app.exception
    assert ["is damaged. Move the file away" in error.value for error in app.error] == [True]
    (tmp_path / "bad" / "library.db").unlink()
    press(app, "try_again")
    assert not app.error


def test_a_library_that_is_damaged_under_the_server_leaves_the_pages_alive(
    browse: Browse, pool: FakePool, tiny: Study
) -> None:
    finish(pool, tiny)
    app = browse(ANN, tiny)
    pool.store.index.close()
    for name in ("library.db-wal", "library.db-shm"):
        (pool.store.root / name).unlink(missing_ok=True)
    (pool.store.root / "library.db").write_bytes(b"no database " * 1000)
    app.run()
    sound(app)
    assert app.error
    assert {"is damaged. Move the file away" in error.value for error in app.error} == {True}
    assert "Run the sample" in [button.label for button in app.button]
    # What is at hand is still shown.
    app.switch_page("pages/compare.py").run()
    sound(app)
    press(app, "run_again")
    assert any(
        "This comparison was not added to your runs." in error.value or "damaged" in error.value
        for error in app.error
    )


def test_a_run_that_cannot_be_listed_is_still_shown(
    browse: Browse, pool: FakePool, tiny: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(pool, tiny)
    app = browse(ANN)

    def full(*_: object, **__: object) -> None:
        raise LibraryError(
            "The library's database cannot be written, because the disk is full. Free some space,"
            " then run again."
        )

    monkeypatch.setattr(index.Index, "shelve", full)
    app.query_params["s"] = tiny.pack()
    del app.session_state["session"]
    app.run()
    sound(app)
    assert [error.value for error in app.error] == [
        (
            "This comparison was not added to your runs. The library's database cannot be"
            " written, because the disk is full. Free some space, then run again."
        )
    ]
    app.run()
    assert not app.error


def test_a_locked_library_is_one_sentence(
    browse: Browse, pool: FakePool, tiny: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_BUSY_S", 0.05)
    pool.store = Store(tmp_path / "busy")
    app = browse(ANN, tiny).switch_page("pages/policies.py").run()
    other = sqlite3.connect(pool.store.root / "library.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    press(app, "run")
    assert [
        error.value.startswith("This comparison was not added to your runs.")
        and "locked" in error.value
        for error in app.error
    ] == [True]
    assert "policies done" in texts(app)
    other.execute("ROLLBACK")
    other.close()


def test_a_browser_brings_its_token_and_nothing_else_counts_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def at(cookies: dict[str, str]) -> tuple[str, str]:
        fake = SimpleNamespace(session_state={}, context=SimpleNamespace(cookies=cookies))
        monkeypatch.setattr(browser_identity, "st", fake)
        return browser_identity.owner(), fake.session_state[browser_identity._TOKEN]

    brought, token = at({"trainyard_browser": ANN})
    assert token == ANN
    assert (len(brought), brought == at({"trainyard_browser": ANN})[0], ANN in brought) == (
        32,
        True,
        False,
    )
    assert f"trainyard_browser={ANN};" in browser_identity.cookie_script()
    others = [
        at(cookies)
        for cookies in (
            {},
            {},
            {"trainyard_browser": "a" * 31},
            {"trainyard_browser": f'{ANN}"; alert(1)'},
            {"trainyard_browser": "A" * 32},
        )
    ]
    assert len({name for name, _ in others} - {brought}) == 5
    assert all(len(token) == 32 and set(token) <= set("0123456789abcdef") for _, token in others)


def test_instants_as_people_say_them() -> None:
    now = datetime(2026, 3, 1, 0, 30, tzinfo=UTC)
    told = [
        relative_date(datetime(*at, tzinfo=UTC), now)
        for at in (
            (2026, 3, 1, 0, 5),
            (2026, 2, 28, 23, 59),
            (2026, 2, 27, 9, 0),
            (2025, 12, 31, 9, 0),
        )
    ]
    assert told == ["today 00:05", "yesterday 23:59", "27 Feb 09:00", "31 Dec 2025"]

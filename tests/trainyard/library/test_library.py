"""Several processes, lost and damaged databases, later versions, remote files: the library keeps
what it was given.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
import sqlalchemy.engine.default

from sim.errors import TrainyardError
from sim.trace import Trace
from tests.shared import SetClock
from tests.trainyard.store.test_store import KEY, put, result_of
from trainyard.store import Store, StoreError
from trainyard.store import index as indices
from trainyard.store.claimers import new_claimer
from trainyard.store.files import Folder, Remote
from trainyard.store.index import Index, database_in
from trainyard.store.rows import RUN, IndexRow, LibraryError

DOCUMENT = {"kind": "study", "seed": 1}


def row(key: str, *, complete: bool = True, summary: float = 1.0) -> IndexRow:
    return IndexRow(RUN, key, 100.0, complete, 10, {"summary": {"x": summary}})


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    made = Index(database_in(tmp_path))
    yield made
    made.close()


def test_what_is_there_stays_but_numbers_give_way_to_a_whole_run(index: Index) -> None:
    index.put(row("aa", complete=False, summary=1.0))
    index.put(row("aa", complete=False, summary=2.0))
    assert index.get(RUN, "aa") == row("aa", complete=False, summary=1.0)
    index.put(row("aa", summary=3.0))
    index.put(row("aa", summary=4.0))
    index.put(row("aa", complete=False, summary=5.0))
    assert index.get(RUN, "aa") == row("aa", summary=3.0)
    assert index.get("trace", "aa") is None


def test_thousands_of_keys_in_one_question(index: Index) -> None:
    keys = [f"{at:08x}" for at in range(1300)]
    for key in keys[:5]:
        index.put(row(key))
    assert set(index.among(RUN, keys)) == set(keys[:5])
    index.drop(RUN, keys)
    assert index.rows(RUN) == []


def test_a_shelf_names_tags_and_counts_what_is_there(index: Index) -> None:
    index.put(row("aa"))
    index.shelve("ann", "s1", DOCUMENT, "FIFO and SJF", ["aa", "bb", "aa"])
    index.shelve("ann", "s2", DOCUMENT, "Other", [])
    index.shelve("ann", "s1", DOCUMENT, "ignored: it is the same", ["aa", "bb"])
    assert index.label("ann", "s1", name="Mine", tags=["talk", "v2"])
    assert not index.label("bob", "s1", name="Stolen")
    first, second = index.shelf("ann")
    assert (first.study, first.title, first.name, first.tags, first.runs, first.there) == (
        "s1",
        "FIFO and SJF",
        "Mine",
        ("talk", "v2"),
        2,
        1,
    )
    assert (second.study, second.runs, second.there, dict(second.document)) == (
        "s2",
        0,
        0,
        DOCUMENT,
    )
    assert index.shelf("bob") == []


def test_deleting_drops_one_reference_and_tells_which_runs_nobody_needs(index: Index) -> None:
    index.shelve("ann", "s1", DOCUMENT, "one", ["aa", "bb"])
    index.shelve("bob", "s1", DOCUMENT, "one", ["aa", "bb"])
    index.shelve("bob", "s2", DOCUMENT, "two", ["bb", "cc"])
    for key in ("aa", "bb"):
        index.put(row(key))
    assert index.unshelve("ann", "s1") == []
    assert index.unshelve("bob", "s1") == ["aa"]
    # At once off the list, so that nobody counts on it.
    assert set(index.among(RUN, ["aa", "bb"])) == {"bb"}
    assert index.unshelve("bob", "s2") == ["bb", "cc"]
    assert index.unshelve("bob", "s2") == []


def test_a_run_that_is_made_again_while_it_is_deleted_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    for key in (KEY, "cd" * 16):
        put(store, key)
    store.index.shelve("ann", "s1", DOCUMENT, "one", [KEY, "cd" * 16])
    unshelve = store.index.unshelve

    def meanwhile(owner: str, study: str) -> list[str]:
        gone = unshelve(owner, study)
        put(store, KEY)
        return gone

    monkeypatch.setattr(store.index, "unshelve", meanwhile)
    store.unshelve("ann", "s1")
    entry = store.get(KEY)
    assert entry is not None
    assert entry.result().digest() == result_of().digest()
    assert [path.name for path in (tmp_path / "store" / "runs").glob("*/*")] == [KEY]


def test_a_shelf_takes_more_runs_than_a_statement_takes_values(index: Index) -> None:
    index.close()
    sa.event.listen(
        index._engine,
        "connect",
        lambda connection, _: connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 600),
    )
    keys = [f"{at:08x}" for at in range(2000)]
    for _ in range(2):
        index.shelve("ann", "s1", DOCUMENT, "one", keys)
    assert index.uses("s1") == keys


def test_a_result_is_looked_for_once_and_what_is_damaged_is_not_known_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    for at in range(3):
        put(store, f"{at:032x}")
    store.put_numbers(f"{3:032x}", {"x": 1}, {})
    keys, looked, sizes = [f"{at:032x}" for at in range(4)], list[str](), Folder.sizes

    def counted(self: Folder, key: str) -> dict[str, int]:
        looked.append(key)
        return sizes(self, key)

    monkeypatch.setattr(Folder, "sizes", counted)
    assert store.has(keys[0])
    assert looked == keys[:1]
    looked.clear()
    (tmp_path / "store" / "runs" / "00" / keys[1] / "jobs.parquet").write_bytes(b"")
    assert set(store.numbers(keys)) == set(keys)
    assert looked == []
    assert set(store.numbers(keys, whole=True)) == {keys[0], keys[2]}
    assert sorted(looked) == keys[:3]
    # What the database knows of it is not damaged.
    assert store.numbers(keys)[keys[1]] == store.numbers(keys)[keys[0]]
    assert [entry.key for entry in store.entries()] == [keys[2], keys[0]]
    put(store, keys[1])
    assert store.has(keys[1])


def test_runs_of_what_has_a_name_do_not_expire(tmp_path: Path) -> None:
    clock = SetClock()
    store = Store(tmp_path / "store", clock=clock)
    for at in range(3):
        put(store, f"{at:032x}")
    store.index.shelve("ann", "s1", DOCUMENT, "one", [f"{0:032x}"])
    store.index.shelve("ann", "s2", DOCUMENT, "two", [f"{1:032x}"])
    store.index.label("ann", "s1", name="kept")
    clock.go_on(31.0)
    store.index.shelve("ann", "s1", DOCUMENT, "one", [])
    assert store.expire() == 2
    assert [entry.key for entry in store.entries()] == [f"{0:032x}"]


def test_what_killed_processes_left_half_written_goes_in_time(tmp_path: Path) -> None:
    clock = SetClock()
    store = Store(tmp_path, clock=clock)
    draft = tmp_path / "drafts" / "ab"
    draft.mkdir(parents=True)
    (draft / "jobs.parquet").write_bytes(b"half")
    os.utime(draft, (clock.now_s(), clock.now_s()))
    clock.go_on(1.0)
    put(store)
    store.expire()
    assert draft.is_dir()
    clock.go_on(30.5)
    put(store, "ef" * 16)
    store.expire()
    assert list((tmp_path / "drafts").iterdir()) == []


def test_a_lost_database_is_made_anew_from_the_files(tmp_path: Path, trace: Trace) -> None:
    store = Store(tmp_path / "store")
    put(store)
    digest = store.put_trace(trace)
    store.put_profile("ab" * 8, b"gpu,speed", {"name": "mine"})
    store.index.close()
    for path in (tmp_path / "store").glob("library.db*"):
        path.unlink()
    again = Store(tmp_path / "store")
    entry = again.get(KEY)
    assert entry is not None
    assert entry.result().digest() == result_of().digest()
    assert again.get_trace(digest).digest == digest
    assert again.get_profile("ab" * 8) == (b"gpu,speed", {"name": "mine"})


def test_what_cannot_be_read_is_left_out_when_the_database_is_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "store")
    put(store)
    (next((tmp_path / "store" / "runs").glob("*/*")) / "manifest.json").write_text("{")
    store.index.close()
    shutil.move(tmp_path / "store" / "library.db", tmp_path / "away")
    with caplog.at_level(logging.WARNING):
        assert Store(tmp_path / "store").entries() == []
    assert "cannot be read" in caplog.text


def test_a_damaged_database_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "library.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(
        LibraryError,
        match=(
            r"is damaged\. Move the file away: full results are listed again; names, sweeps and"
            r" numbers are lost"
        ),
    ):
        Index(database_in(tmp_path))


def test_a_library_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    index = Index(database_in(tmp_path))
    index.put(row("aa"))
    index.close()
    with sqlite3.connect(tmp_path / "library.db") as connection:
        connection.execute("INSERT INTO versions VALUES (99, 0)")
    with pytest.raises(LibraryError, match="created by a later version"):
        Index(database_in(tmp_path))


def test_a_library_of_an_earlier_version_is_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Index(database_in(tmp_path))
    first.put(row("aa"))
    first.close()

    def added(connection: sa.Connection) -> None:
        connection.execute(sa.text("ALTER TABLE things ADD COLUMN later INTEGER DEFAULT 7"))

    monkeypatch.setattr(indices, "MIGRATIONS", (*indices.MIGRATIONS, added))
    second = Index(database_in(tmp_path))
    assert not second.is_new
    assert second.get(RUN, "aa") == row("aa")
    second.close()
    with sqlite3.connect(tmp_path / "library.db") as connection:
        assert connection.execute("SELECT later FROM things").fetchall() == [(7,)]
        assert connection.execute("SELECT version FROM versions ORDER BY version").fetchall() == [
            (at,) for at in range(1, len(indices.MIGRATIONS) + 1)
        ]


@pytest.mark.parametrize(
    "address",
    [
        "nonsense",
        "mysql://localhost/x",
        "sqlite:////no/such/folder/x.db",
        "sqlite://",
        "sqlite:///:memory:",
        "mssql://x/y",
        "://",
        "postgresql+psycopg://u@h:x/x",
    ],
)
def test_addresses_that_cannot_be_used_are_one_sentence(address: str) -> None:
    with pytest.raises(TrainyardError) as caught:
        Index(address)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql+psycopg://me:secret@127.0.0.1:1/none",
        "postgresql+psycopg://me:half@and:secret@h/none",
        "postgresql+psycopg://me:some@secret@127.0.0.1:1/none",
        "postgresql+psycopg://me:secret?x@127.0.0.1:1/none",
        "postgresql+psycopg://me:%73ecret@127.0.0.1:1/none",
        "postgresql+psycopg://me@127.0.0.1:1/none?password=secret",
        "postgresql+psycopg://127.0.0.1:1/none?user=a@b&password=secret",
        "postgresql+psycopg://me@127.0.0.1:1/none?password=sec%72et&sslmode=disable",
        "postgresql+psycopg://me@127.0.0.1:1/none?sslpassword=secret&passfile=/secret",
        "postgresql+psycopg://me@127.0.0.1:1/none?options=-c%20x.y%3Dsecret",
        "postgresql+psycopg://me@127.0.0.1:1/none?gssencmode=secret",
        "postgresql+psycopg:///none?host=127.0.0.1&port=1&password=secret",
        "postgresql+psycopg://me@127.0.0.1:1/none#password=secret",
        "host=127.0.0.1 port=1 password=secret",
        "nothing://me:secret@h/none",
        "me:secret@h/none",
    ],
)
def test_passwords_are_not_shown(address: str) -> None:
    with pytest.raises(LibraryError) as caught:
        Index(address)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", ["s3://me:secret@h/x", "s3://h/x?token=secret"])
def test_passwords_of_places_are_not_shown(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="need a database") as caught:
        Store(address)
    assert "secret" not in str(caught.value)

    def refuse(url: str) -> None:
        raise OSError(f"no way to {url}")

    fsspec = pytest.importorskip("fsspec.core", reason="fsspec is an extra")
    monkeypatch.setattr(fsspec, "url_to_fs", refuse)
    with pytest.raises(StoreError, match="no way to") as caught:
        Remote(address)
    assert "secret" not in str(caught.value)


def test_a_machine_that_does_not_answer_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("psycopg", reason="PostgreSQL is an extra (requirements-scale.txt)")
    given: dict[str, object] = {}
    create = sa.create_engine
    monkeypatch.setattr(
        sa, "create_engine", lambda url, **more: given.update(more) or create(url, **more)
    )
    with pytest.raises(
        LibraryError, match=r"cannot be used \(.*Check that it exists and its address is correct\."
    ):
        Index("postgresql+psycopg://me@127.0.0.1:1/none")
    assert given["connect_args"] == {"connect_timeout": 10}


def check_claims(first: Index, second: Index, clock: SetClock) -> None:
    """Two processes claim runs of one library."""
    mine, other = new_claimer(), new_claimer()
    assert first.claim(mine, ["aa", "bb"]) == {"aa", "bb"}
    assert second.claim(other, ["bb", "cc"]) == {"cc"}
    first.release(mine, ["bb", "cc"])  # the last one is not its own
    assert second.claim(other, ["aa", "bb"]) == {"bb"}
    assert first.claim(mine, ["bb", "cc"]) == set()
    # A claim that is renewed holds on, the others lapse.
    clock.go_on(40 / 86_400)
    assert first.claim(mine, ["aa"]) == {"aa"}
    clock.go_on(40 / 86_400)
    assert second.claim(other, ["aa"]) == set()
    assert first.claim(mine, ["bb", "cc"]) == {"bb", "cc"}
    # So do claims that were made while the clock was ahead.
    clock.set_wrong(-1.0)
    assert second.claim(other, ["aa", "bb"]) == {"aa", "bb"}


def test_a_run_is_claimed_by_one_process_at_a_time(tmp_path: Path) -> None:
    clock = SetClock()
    with (
        closing(Index(database_in(tmp_path), clock)) as one,
        closing(Index(database_in(tmp_path), clock)) as two,
    ):
        check_claims(one, two, clock)


@pytest.mark.parametrize("how", ["ended", "killed"])
def test_claims_of_a_dead_process_do_not_hold(index: Index, how: str) -> None:
    code = "from trainyard.store.claimers import new_claimer; print(new_claimer(), flush=True);"
    command = [sys.executable, "-c", f"{code} input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        other = process.stdout.readline().decode().strip()
        assert index.claim(other, ["aa"]) == {"aa"}
        assert index.claim(new_claimer(), ["aa"]) == set()
        if how == "killed":
            process.kill()
        process.stdin.close()
        process.wait()
    assert index.claim(new_claimer(), ["aa"]) == {"aa"}


def test_claims_of_another_machine_hold(index: Index) -> None:
    assert index.claim("0123456789ab-1-5-abc", ["aa"]) == {"aa"}
    assert index.claim(new_claimer(), ["aa"]) == set()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_library_is_closed_to_other_users(tmp_path: Path, umask: int) -> None:
    root = tmp_path / "new" / "library"
    root.parent.mkdir()
    before = os.umask(umask)
    try:
        store = Store(root)
        put(store)
    finally:
        os.umask(before)
    assert mode(root) == 0o700
    assert {path.name: mode(path) for path in root.glob("library.db*")} == dict.fromkeys(
        ("library.db", "library.db-wal", "library.db-shm"), 384
    )
    # One that an earlier version made is closed when it is opened.
    for path in (root, *root.glob("library.db*")):
        path.chmod(0o777 if path == root else 0o666)
    again = Store(root)
    assert {mode(path) for path in root.glob("library.db*")} == {0o600}
    assert mode(root) == 0o700
    assert again.has(KEY)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
@pytest.mark.parametrize(("rights", "others"), [(0o1777, []), (0o755, ["notes.txt"])])
def test_a_folder_that_others_use_keeps_its_rights(
    tmp_path: Path, rights: int, others: list[str]
) -> None:
    root = tmp_path / "shared"
    root.mkdir()
    for name in others:
        (root / name).touch()
    root.chmod(rights)
    Store(root)
    assert mode(root) == rights
    assert mode(root / "library.db") == 0o600


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_database_that_goes_while_it_is_used_is_said(tmp_path: Path, how: str) -> None:
    store = Store(tmp_path / "store")
    put(store)
    same = Store.open(store.address)
    for path in (tmp_path / "store").glob("library.db*"):
        path.rename(tmp_path / path.name)
    if how == "replaced":
        Store(tmp_path / "store").index.close()
    for act in (lambda: store.put_numbers("ab" * 16, {"x": 1}, {}), store.entries):
        with pytest.raises(LibraryError, match=r"was removed while in use\. Restart Trainyard"):
            act()
    # What asks by the address gets one that is made anew from the files.
    again = Store.open(store.address)
    assert again is not same
    assert [entry.key for entry in again.entries()] == [KEY]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("database or disk is full", "because the disk is full. Free some space, then run again."),
        (
            "could not extend file: No space left on device",
            "because the disk is full. Free some space, then run again.",
        ),
        ("disk I/O error", "its disk is full or fails. Free space or check the disk."),
        (
            "database is locked",
            "has been held by another process for 30 s. Wait until that is done, then run again.",
        ),
        (
            "attempt to write a readonly database",
            (
                "cannot be written. Check the rights to its folder, or set TRAINYARD_STORE to"
                " another folder."
            ),
        ),
        (
            "server closed the connection unexpectedly",
            (
                "(server closed the connection unexpectedly). Check that it exists and its"
                " address is correct."
            ),
        ),
    ],
)
def test_what_the_database_says_is_told_with_what_to_do(
    index: Index, monkeypatch: pytest.MonkeyPatch, said: str, told: str
) -> None:
    def refused(*_: object) -> None:
        raise sqlite3.OperationalError(said)

    monkeypatch.setattr(sqlalchemy.engine.default.DefaultDialect, "do_execute", refused)
    # What is written is not mistaken for what went wrong.
    with pytest.raises(LibraryError) as caught:
        index.shelve("ann", "s1", {"full": "malformed"}, "The disk is full", [])
    assert str(caught.value).endswith(told)


def test_a_writer_waits_for_another_and_then_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indices, "_BUSY_S", 0.1)
    index = Index(database_in(tmp_path))
    other = sqlite3.connect(tmp_path / "library.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LibraryError, match="held by another process"):
        index.put(row("aa"))
    assert index.get(RUN, "aa") is None
    other.execute("COMMIT")
    other.close()
    index.put(row("aa"))
    assert index.get(RUN, "aa") == row("aa")
    index.close()


def test_a_reader_goes_on_while_another_process_migrates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Index(database_in(tmp_path))
    first.put(row("aa"))

    def slow(connection: sa.Connection) -> None:
        connection.execute(sa.text("ALTER TABLE things ADD COLUMN later INTEGER DEFAULT 7"))
        assert first.get(RUN, "aa") == row("aa")

    monkeypatch.setattr(indices, "MIGRATIONS", (*indices.MIGRATIONS, slow))
    second = Index(database_in(tmp_path))
    first.put(row("bb"))
    assert set(second.among(RUN, ["aa", "bb"])) == {"aa", "bb"}
    first.close()
    second.close()


def test_whatever_is_damaged_in_a_frame_is_one_sentence(tmp_path: Path) -> None:
    rng, told = np.random.default_rng(0), list[str]()
    store = Store(tmp_path / "store")
    for _ in range(10):
        put(store)
        path = next((tmp_path / "store" / "runs").glob("*/*/jobs.parquet"))
        data = bytearray(path.read_bytes())
        at = int(rng.integers(len(data) - 8))
        data[at : at + 8] = rng.bytes(8)
        path.write_bytes(data)
        entry, before = store.get(KEY), len(told)
        assert entry is not None
        try:
            # Some bytes of a file say nothing of what is in it.
            assert entry.result().digest() == result_of().digest()
        except StoreError as error:
            told.append(str(error))
        assert (store.get(KEY) is None) == (len(told) > before)
        store.delete(KEY)
    assert len(told) >= 4
    assert all(one.endswith("is removed. Run the scenario again.") for one in told)


def _write(address: str, start: int) -> int:
    store = Store.open(address)
    for at in range(start, start + 60):
        store.put_numbers(f"{at:032x}", {"x": at}, {"seed": at})
        store.index.shelve(f"owner{start}", f"s{at}", {"at": at}, "t", [f"{at:032x}"])
    return start


def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        # Half of what both write is the same.
        assert list(pool.map(_write, [store.address] * 2, (0, 30))) == [0, 30]
    assert len(store.numbers(f"{at:032x}" for at in range(100))) == 90
    assert (len(store.index.shelf("owner0")), len(store.index.shelf("owner30"))) == (60, 60)


WRITER = """
import sys
from trainyard.store import Store
from tests.trainyard.store.test_store import put
store = Store(sys.argv[1])
for at in range(10_000):
    put(store, f"{at:032x}")
    print(at, flush=True)
"""


def test_a_killed_process_leaves_a_readable_library(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    environment = os.environ | {"PYTHONPATH": str(root)}
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "store")],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 3:
            process.send_signal(signal.SIGKILL)
            break
    process.stdout.close()
    process.wait()
    store = Store(tmp_path / "store")
    entries = store.entries()
    assert len(entries) >= 4
    assert all(entry.result().digest() == result_of().digest() for entry in entries)
    put(store, "ff" * 16)
    assert store.has("ff" * 16)


def test_files_behind_a_url(tmp_path: Path, trace: Trace) -> None:
    pytest.importorskip("fsspec", reason="fsspec is an extra (requirements-scale.txt)")
    store = Store(f"file://{tmp_path / 'far'}", database=f"sqlite:///{tmp_path / 'library.db'}")
    put(store)
    digest = store.put_trace(trace)
    again = Store.open(store.address)
    entry = again.get(KEY)
    assert entry is not None
    assert entry.result().digest() == result_of().digest()
    assert again.get_trace(digest).digest == digest
    again.delete(KEY)
    assert not store.has(KEY)
    pd.testing.assert_frame_equal(store.get_trace(digest).frame, trace.frame)


def test_a_url_without_a_database_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINYARD_DATABASE", raising=False)
    with pytest.raises(StoreError, match="need a database"):
        Store("memory://somewhere")


def test_a_kind_of_url_that_nobody_knows_is_one_sentence() -> None:
    pytest.importorskip("fsspec", reason="fsspec is an extra (requirements-scale.txt)")
    with pytest.raises(
        StoreError, match=r"cannot be kept at nowhere://x .*Install requirements-scale\.txt"
    ):
        Remote("nowhere://x")


def test_a_thousand_runs_are_listed_without_a_look_at_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    about = {
        "sizes": {"jobs.parquet": 10},
        "rows": {},
        "summary": {},
        "scenario": {},
        "provenance": {},
    }
    for at in range(1000):
        store.index.put(IndexRow(RUN, f"{at:032x}", float(at), True, 10, about))
    monkeypatch.setattr("trainyard.store.files.Folder.sizes", None)
    assert [entry.key for entry in store.entries()[:2]] == [f"{999:032x}", f"{998:032x}"]

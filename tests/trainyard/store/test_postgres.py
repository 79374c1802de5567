"""The library in a real PostgreSQL, started for the test."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.browser.server import free_port
from tests.shared import SetClock
from tests.trainyard.library.test_library import DOCUMENT, _write, check_claims, row
from tests.trainyard.store.test_store import KEY, put, result_of
from tests.trainyard.sweeps.cases import STUDY
from tests.waiting import wait_until
from trainyard.store import Store
from trainyard.store.index import Index
from trainyard.store.rows import LibraryError
from trainyard.study.sweep import Axis, Sweep
from trainyard.sweeps.sweep_run import SweepRun

pytestmark = [pytest.mark.slow, pytest.mark.postgres]


def _tool(name: str) -> str | None:
    """A program of the server: Debian keeps them out of the way, by version."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(places[-1]) if places else shutil.which(name)


class Server(NamedTuple):
    address: str
    stop: list[str]
    """The command that stops it at once, whoever is connected."""


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a fresh server on a free port."""
    initdb, postgres = _tool("initdb"), _tool("postgres")
    required = os.environ.get("TRAINYARD_REQUIRE_POSTGRES") == "1"
    try:
        import psycopg  # noqa: F401, PLC0415 - an extra
    except ImportError:
        initdb = None
    if initdb is None or postgres is None:
        reason = (
            "PostgreSQL is not installed (Debian, Ubuntu: apt-get install postgresql), or psycopg"
            " is not (requirements-scale.txt)"
        )
        if required:
            pytest.fail(reason)
        pytest.skip(reason)
    # The server refuses to run as root, and the folders of tests are closed to others.
    as_other = (
        ["runuser", "-u", "postgres", "--"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    )
    made = subprocess.run(
        [*as_other, "mktemp", "-d"], check=True, capture_output=True, text=True, cwd="/"
    )
    folder = made.stdout.strip()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
    subprocess.run(
        [*as_other, initdb, "-D", folder, "-U", "trainyard", "-A", "trust", "-N"],
        check=True,
        **quiet,
    )  # type: ignore[call-overload]
    port = free_port()
    command = [
        *as_other,
        postgres,
        "-D",
        folder,
        "-p",
        str(port),
        "-c",
        "listen_addresses=127.0.0.1",
        "-c",
        f"unix_socket_directories={folder}",
        "-F",
    ]
    process = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]
    try:
        address = _up(f"postgresql+psycopg://trainyard@127.0.0.1:{port}/postgres")
        yield Server(
            address, [*as_other, str(_tool("pg_ctl")), "-D", folder, "stop", "-m", "immediate"]
        )
    finally:
        process.terminate()
        process.wait()
        subprocess.run([*as_other, "rm", "-rf", folder], check=False, cwd="/")


def _up(address: str) -> str:
    import sqlalchemy as sa  # noqa: PLC0415 - beside its driver

    engine = sa.create_engine(address)

    def is_up() -> bool:
        try:
            engine.connect().close()
        except sa.exc.OperationalError:
            return False
        return True

    wait_until(is_up, "PostgreSQL answers")
    engine.dispose()
    return address


def test_a_run_is_claimed_by_one_process_at_a_time(server: Server) -> None:
    clock = SetClock()
    with closing(Index(server.address, clock)) as one, closing(Index(server.address, clock)) as two:
        check_claims(one, two, clock)


def test_everything_in_turn(server: Server, tmp_path: Path) -> None:
    clock = SetClock()
    store = Store(tmp_path / "store", database=server.address, clock=clock)
    assert store.index.is_new
    put(store)
    entry = Store.open(store.address).get(KEY)
    assert entry is not None
    assert entry.result().digest() == result_of().digest()
    store.index.put(row("aa", complete=False))
    store.index.put(row("aa"))
    found = store.index.get("run", "aa")
    assert found is not None
    assert found.complete
    store.index.shelve("ann", "s1", DOCUMENT, "one", [KEY, "aa"])
    assert store.index.label("ann", "s1", name="Mine", tags=["a"])
    (kept,) = store.index.shelf("ann")
    assert (kept.name, kept.tags, kept.runs, kept.there) == ("Mine", ("a",), 2, 2)
    clock.go_on(40.0)
    store.put_numbers("ab" * 16, {}, {})
    assert store.expire() == 0
    assert sorted(store.index.unshelve("ann", "s1")) == sorted([KEY, "aa"])
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(_write, [store.address] * 2, (0, 30))) == [0, 30]
    assert len(store.numbers(f"{at:032x}" for at in range(100))) == 90
    again = Index(server.address)
    assert not again.is_new
    for one in (again, store.index, Store.open(store.address).index):
        one.close()


def test_a_server_that_goes_down_ends_a_sweep_with_a_sentence(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store", database=server.address)
    put_numbers, kept = store.put_numbers, list[str]()

    def stopped(key: str, summary: Mapping[str, Any], scenario: Mapping[str, Any]) -> None:
        if len(kept) == 3:
            subprocess.run(
                server.stop,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
            )
        put_numbers(key, summary, scenario)
        kept.append(key)

    monkeypatch.setattr(store, "put_numbers", stopped)
    run = SweepRun(Sweep(STUDY, (Axis("seed", tuple(range(700, 710))),)), store, "inline")
    run.run()
    assert (run.state, len(kept), len(run.table())) == ("failed", 3, 4)
    assert run.error.startswith("The library's database postgresql+psycopg://trainyard@127.0.0.1:")
    assert run.error.endswith("Check that it exists and its address is correct.")
    with pytest.raises(LibraryError, match="Check that it exists"):
        store.numbers(kept)
    for one in (store, Store.open(store.address)):
        one.index.close()

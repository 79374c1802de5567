"""The database of the library: runs, traces, profiles, shelves; SQLite or PostgreSQL."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from trainyard.store.claimers import is_dead
from trainyard.store.files import (
    DATABASE,
    file_identity,
    redact_address,
    redact_secrets,
    restrict_access,
)
from trainyard.store.rows import RUN, TRACE, Clock, IndexRow, LibraryError, ShelvedRecipe
from trainyard.store.schema import (
    CLAIMS,
    MIGRATIONS,
    OWNERS,
    RECIPES,
    SHELF,
    STUDIES,
    THINGS,
    USES,
    VERSIONS,
)

CLAIM_S: Final = 60.0
"""Seconds after which a claim lapses unless its queue renews it."""
_LATER_S: Final = 0.001
"""Seconds between the time stamps of two items stored while the clock is set back."""
_BUSY_S: Final = 30.0
"""Seconds that a writer waits for another one."""
_CONNECT_S: Final = 10
_INSERT: Final[Mapping[str, Callable[[sa.Table], Any]]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}
"""Kind of database -> insert statement that supports ON CONFLICT."""
_FAULTS: Final[Mapping[tuple[str, ...], str]] = {
    ("malformed", "not a database"): (
        "is damaged. Move the file away: full results are listed again; names, sweeps and numbers"
        " are lost unless you repair it."
    ),
    (
        "disk is full",
        "disk full",
        "no space left",
    ): "cannot be written, because the disk is full. Free some space, then run again.",
    ("disk i/o error", "input/output error"): (
        "cannot be read or written (disk I/O error): its disk is full or fails. Free space or check"
        " the disk."
    ),
    ("readonly", "read-only", "unable to open"): (
        "cannot be written. Check the rights to its folder, or set TRAINYARD_STORE to another"
        " folder."
    ),
    ("locked",): (
        f"has been held by another process for {_BUSY_S:.0f} s. Wait until that is done, then run"
        " again."
    ),
}
"""Phrases in a database error -> end of the message to the user."""
MAX_RECIPES: Final = 100
"""Maximum number of recipes per browser."""
_MAX_KEYS_PER_QUERY: Final = 500
"""Maximum values per statement; SQLite accepts some hundreds only."""


class Index:
    """The database of a library.

    Parameters
    ----------
    address : str
        SQLAlchemy address, e.g. ``sqlite:////folder/library.db`` or
        ``postgresql+psycopg://user@host/name``.
    clock : Clock, optional
        Source of time.

    Attributes
    ----------
    is_new : bool
        Whether its tables were just created.

    Raises
    ------
    LibraryError
        If it cannot be reached or was created by a later version.
    """

    def __init__(self, address: str | sa.URL, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._address = (
            address.render_as_string(hide_password=False)
            if isinstance(address, sa.URL)
            else address
        )
        self._place, self._file, self._identity = redact_address(self._address), "", (0, 0)
        try:
            url = sa.make_url(address)
            # Without a timeout, an unreachable machine blocks for minutes.
            timeout = (
                {"connect_timeout": _CONNECT_S} if url.get_backend_name() == "postgresql" else {}
            )
            self._engine = sa.create_engine(url, pool_pre_ping=bool(timeout), connect_args=timeout)
        except (SQLAlchemyError, ImportError, ValueError) as error:
            # A port that is not a number may be part of the password.
            why = (
                "its port is not a number" if isinstance(error, ValueError) else self._reason(error)
            )
            raise LibraryError(
                f"The address {self._place} of the library cannot be used ({why}). Write it as"
                " kind://user@host:port/name."
            ) from error
        if self._engine.dialect.name not in _INSERT or (
            self._engine.dialect.name == "sqlite" and url.database in (None, "", ":memory:")
        ):
            raise LibraryError(
                f"{self._place} cannot hold a library. Use an SQLite file or PostgreSQL."
            )
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _configure_connection)
            sa.event.listen(self._engine, "begin", _begin_transaction)
            _create_private_file(Path(str(url.database)))
        self._writing = self._engine.execution_options(writes=True)
        self.is_new = self._migrate()
        self._file = str(url.database) if self._engine.dialect.name == "sqlite" else ""
        self._identity = file_identity(self._file)
        self._stamped_s = self.newest_s()

    def stamp_s(self) -> float:
        """Return a time stamp in seconds since the epoch, later than all earlier ones."""
        self._stamped_s = max(self._clock.now_s(), self._stamped_s + _LATER_S)
        return self._stamped_s

    def newest_s(self) -> float:
        """Return the last time of storage or use in seconds since the epoch; 0 = never."""
        with self._read_connection() as connection:
            latest_times = (
                connection.scalar(sa.select(sa.func.max(column)))
                for column in (THINGS.c.created_s, SHELF.c.used_s)
            )
            return max(float(latest_s or 0.0) for latest_s in latest_times)

    @property
    def lost(self) -> bool:
        """Whether its file was removed or replaced since it was opened, so that writes are lost."""
        return bool(self._file) and file_identity(self._file) != self._identity

    def _migrate(self) -> bool:
        """Bring the tables up to date; return True if there were none."""
        with self._write_transaction() as connection:
            VERSIONS.create(connection, checkfirst=True)
            version = connection.scalar(sa.select(sa.func.max(VERSIONS.c.version))) or 0
            if version > len(MIGRATIONS):
                raise LibraryError(
                    f"The library {self._place} was created by a later version of Trainyard (table"
                    f" version {version}, supported: {len(MIGRATIONS)}). Install that version, or"
                    " use another library."
                )
            for new_version, step in enumerate(MIGRATIONS[version:], version + 1):
                step(connection)
                connection.execute(
                    VERSIONS.insert().values(version=new_version, since_s=self._clock.now_s())
                )
            return not version

    @contextmanager
    def _write_transaction(self) -> Iterator[sa.Connection]:
        """Open a write transaction; raise `LibraryError` for database errors."""
        self._check_file()
        try:
            with self._writing.begin() as connection:
                if self._engine.dialect.name == "postgresql":
                    # Readers are not blocked; writers take turns, as in SQLite.
                    connection.execute(sa.text("SELECT pg_advisory_xact_lock(7311)"))
                yield connection
        except SQLAlchemyError as error:
            raise self._library_error(error) from error

    @contextmanager
    def _read_connection(self) -> Iterator[sa.Connection]:
        """Open a connection to read; raise `LibraryError` for database errors."""
        self._check_file()
        try:
            with self._engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise self._library_error(error) from error

    def _check_file(self) -> None:
        """Raise LibraryError if the database file was removed or replaced."""
        if self.lost:
            raise LibraryError(
                f"The library's database {self._place} was removed while in use. Restart"
                " Trainyard: a new one lists full results."
            )

    def _library_error(self, error: SQLAlchemyError) -> LibraryError:
        """Return a database error as a `LibraryError` that says what to do."""
        reason = self._reason(error)
        for signs, message in _FAULTS.items():
            if any(sign in reason.casefold() for sign in signs):
                return LibraryError(f"The library's database {self._place} {message}")
        return LibraryError(
            f"The library's database {self._place} cannot be used ({reason}). Check that it"
            " exists and its address is correct."
        )

    def _reason(self, error: BaseException) -> str:
        """Return the first line of a database error, without secrets of the address."""
        lines = str(getattr(error, "orig", None) or error).strip().splitlines()
        first = lines[0].rstrip(".") if lines else type(error).__name__
        return redact_secrets(first, self._address)

    def put(self, row: IndexRow) -> None:
        """Add an item; an existing one stays, but a complete run replaces numbers alone."""
        body = {
            "created_s": row.created_s,
            "complete": row.complete,
            "bytes": row.size,
            "manifest": json.dumps(row.manifest, allow_nan=False),
        }
        statement = self._insert(THINGS).values(kind=row.kind, key=row.key, **body)
        if row.complete:
            statement = statement.on_conflict_do_update(
                index_elements=["kind", "key"], set_=body, where=~THINGS.c.complete
            )
        else:
            statement = statement.on_conflict_do_nothing()
        with self._write_transaction() as connection:
            connection.execute(statement)

    def claim(self, claimer: str, runs: Sequence[str]) -> set[str]:
        """Claim runs for a queue, or renew its claims; return the runs that the queue holds now.

        Other queues hold the other runs.
        """
        if not runs:
            return set()
        now_s = self._clock.now_s()
        body = {"claimer": claimer, "until_s": now_s + CLAIM_S}
        # A claim further in the future was made with a wrong clock.
        holds = CLAIMS.c.until_s.between(now_s, now_s + 2 * CLAIM_S)
        with self._write_transaction() as connection:
            claimers = connection.scalars(sa.select(CLAIMS.c.claimer).distinct())
            dead = [one for one in claimers if one != claimer and is_dead(one)]
            connection.execute(CLAIMS.delete().where(~holds | CLAIMS.c.claimer.in_(dead)))
            connection.execute(
                self._insert(CLAIMS).on_conflict_do_update(
                    index_elements=["run"], set_=body, where=CLAIMS.c.claimer == claimer
                ),
                [{"run": run, **body} for run in dict.fromkeys(runs)],
            )
            held = sa.select(CLAIMS.c.run).where(
                CLAIMS.c.run.in_(runs), CLAIMS.c.claimer == claimer
            )
            return set(connection.scalars(held))

    def release(self, claimer: str, runs: Sequence[str]) -> None:
        """Release the claims of a queue on these runs."""
        if runs:
            with self._write_transaction() as connection:
                connection.execute(
                    CLAIMS.delete().where(CLAIMS.c.run.in_(runs), CLAIMS.c.claimer == claimer)
                )

    def renew(self, kind: str, key: str) -> None:
        """Reset the age of an item to zero."""
        with self._write_transaction() as connection:
            connection.execute(
                THINGS.update()
                .where(THINGS.c.kind == kind, THINGS.c.key == key)
                .values(created_s=self.stamp_s())
            )

    def own(self, owner: str, trace: str) -> None:
        """Add a browser to the owners of a trace; owners may delete it."""
        with self._write_transaction() as connection:
            connection.execute(
                self._insert(OWNERS).values(owner=owner, trace=trace).on_conflict_do_nothing()
            )

    def owners(self, trace: str) -> set[str]:
        """Return the browsers that may delete a trace."""
        with self._read_connection() as connection:
            return set(connection.scalars(sa.select(OWNERS.c.owner).where(OWNERS.c.trace == trace)))

    def owned_traces(self, owner: str) -> set[str]:
        """Return the traces that a browser uploaded."""
        with self._read_connection() as connection:
            return set(connection.scalars(sa.select(OWNERS.c.trace).where(OWNERS.c.owner == owner)))

    def disown(self, owner: str, trace: str) -> None:
        """Remove a browser from the owners of a trace."""
        with self._write_transaction() as connection:
            connection.execute(
                OWNERS.delete().where(OWNERS.c.owner == owner, OWNERS.c.trace == trace)
            )

    def keep_recipe(self, owner: str, fingerprint: str, text: str) -> None:
        """Store the recipe of a browser for files of one kind; drop the oldest above the limit."""
        body = {"text": text, "saved_s": self._clock.now_s()}
        own = RECIPES.c.owner == owner
        newest = (
            sa.select(RECIPES.c.fingerprint)
            .where(own)
            .order_by(RECIPES.c.saved_s.desc())
            .limit(MAX_RECIPES)
        )
        with self._write_transaction() as connection:
            connection.execute(
                self._insert(RECIPES)
                .values(owner=owner, fingerprint=fingerprint, **body)
                .on_conflict_do_update(index_elements=["owner", "fingerprint"], set_=body)
            )
            connection.execute(RECIPES.delete().where(own, RECIPES.c.fingerprint.not_in(newest)))

    def recipe(self, owner: str, fingerprint: str) -> str:
        """Return the recipe of a browser for files with a fingerprint; "" = none."""
        with self._read_connection() as connection:
            text = connection.scalar(
                sa.select(RECIPES.c.text).where(
                    RECIPES.c.owner == owner, RECIPES.c.fingerprint == fingerprint
                )
            )
        return text or ""

    def forget_recipe(self, owner: str, fingerprint: str) -> None:
        """Remove a recipe of a browser if it exists."""
        with self._write_transaction() as connection:
            connection.execute(
                RECIPES.delete().where(
                    RECIPES.c.owner == owner, RECIPES.c.fingerprint == fingerprint
                )
            )

    def _insert(self, table: sa.Table) -> Any:
        return _INSERT[self._engine.dialect.name](table)

    def get(self, kind: str, key: str) -> IndexRow | None:
        """Return the row of an item of a kind, None if missing."""
        with self._read_connection() as connection:
            row = connection.execute(
                sa.select(THINGS).where(THINGS.c.kind == kind, THINGS.c.key == key)
            ).first()
        return _to_index_row(row) if row is not None else None

    def among(self, kind: str, keys: Iterable[str]) -> dict[str, IndexRow]:
        """Return key -> row of the items of a kind that exist."""
        unique_keys, rows = list(dict.fromkeys(keys)), dict[str, IndexRow]()
        with self._read_connection() as connection:
            for start in range(0, len(unique_keys), _MAX_KEYS_PER_QUERY):
                some = THINGS.c.key.in_(unique_keys[start : start + _MAX_KEYS_PER_QUERY])
                rows |= {
                    row.key: _to_index_row(row)
                    for row in connection.execute(
                        sa.select(THINGS).where(THINGS.c.kind == kind, some)
                    )
                }
        return rows

    def rows(self, kind: str, *, complete: bool = False) -> list[IndexRow]:
        """Return the rows of a kind, newest first; with `complete` those with files only."""
        query = sa.select(THINGS).where(
            THINGS.c.kind == kind, *([THINGS.c.complete] if complete else [])
        )
        with self._read_connection() as connection:
            return [
                _to_index_row(row)
                for row in connection.execute(
                    query.order_by(THINGS.c.created_s.desc(), THINGS.c.key)
                )
            ]

    def items_before(self, limit_s: float) -> list[tuple[str, str]]:
        """Return (kind, key) of items stored before a time, except runs of named studies.

        Studies with tags count as named.
        """
        named = (
            sa.select(USES.c.run)
            .join_from(USES, SHELF, USES.c.study == SHELF.c.study)
            .where((SHELF.c.name != "") | (SHELF.c.tags != ""))
        )
        kept = (THINGS.c.kind == RUN) & THINGS.c.key.in_(named)
        with self._read_connection() as connection:
            rows = connection.execute(
                sa.select(THINGS.c.kind, THINGS.c.key).where(THINGS.c.created_s < limit_s, ~kept)
            )
            return [(row.kind, row.key) for row in rows]

    def drop(self, kind: str, keys: Iterable[str]) -> None:
        """Remove items of a kind from the database; for traces also the records of their owners."""
        with self._write_transaction() as connection:
            _delete_items(connection, kind, list(keys))

    def drop_files(self, key: str) -> None:
        """Mark a run as numbers only, after its files are lost."""
        with self._write_transaction() as connection:
            connection.execute(
                THINGS.update()
                .where(THINGS.c.kind == RUN, THINGS.c.key == key)
                .values(complete=False, bytes=0)
            )

    def shelve(
        self,
        owner: str,
        study: str,
        document: Mapping[str, Any],
        title: str,
        keys: Sequence[str],
        name: str = "",
    ) -> None:
        """Put a study or sweep on an owner's shelf, or move it to the front.

        A study on the shelf keeps its name.
        """
        with self._write_transaction() as connection:
            body = {
                "id": study,
                "document": json.dumps(document, sort_keys=True, allow_nan=False),
                "title": title,
            }
            connection.execute(self._insert(STUDIES).values(body).on_conflict_do_nothing())
            if keys:
                # Row by row: one statement for 100,000 rows exceeds the limits of databases.
                connection.execute(
                    self._insert(USES).on_conflict_do_nothing(),
                    [{"study": study, "run": key} for key in dict.fromkeys(keys)],
                )
            place = {
                "owner": owner,
                "study": study,
                "name": name,
                "tags": "",
                "used_s": self.stamp_s(),
            }
            connection.execute(
                self._insert(SHELF)
                .values(place)
                .on_conflict_do_update(
                    index_elements=["owner", "study"], set_={"used_s": place["used_s"]}
                )
            )

    def shelf(self, owner: str) -> list[ShelvedRecipe]:
        """Return the items on an owner's shelf with counts of their runs, last used first."""
        counts = (
            sa.func.count().label("runs"),
            sa.func.count(THINGS.c.key).label("there"),
            sa.func.sum(THINGS.c.bytes).label("bytes"),
        )
        runs = sa.select(USES.c.study, *counts)
        # This shelf only: a server has many.
        own = USES.c.study.in_(sa.select(SHELF.c.study).where(SHELF.c.owner == owner))
        joined = runs.join_from(
            USES, THINGS, (USES.c.run == THINGS.c.key) & (THINGS.c.kind == RUN), isouter=True
        )
        counted = joined.where(own).group_by(USES.c.study).subquery()
        columns = sa.select(
            STUDIES,
            SHELF.c.name,
            SHELF.c.tags,
            SHELF.c.used_s,
            counted.c.runs,
            counted.c.there,
            counted.c.bytes,
        )
        query = columns.join_from(SHELF, STUDIES, SHELF.c.study == STUDIES.c.id).join(
            counted, counted.c.study == STUDIES.c.id, isouter=True
        )
        with self._read_connection() as connection:
            rows = connection.execute(
                query.where(SHELF.c.owner == owner).order_by(SHELF.c.used_s.desc(), STUDIES.c.id)
            ).all()
        return [_to_shelved_recipe(row) for row in rows]

    def uses(self, study: str) -> list[str]:
        """Return the run keys of a study or sweep."""
        with self._read_connection() as connection:
            return list(
                connection.scalars(
                    sa.select(USES.c.run).where(USES.c.study == study).order_by(USES.c.run)
                )
            )

    def label(
        self, owner: str, study: str, *, name: str | None = None, tags: Sequence[str] | None = None
    ) -> bool:
        """Set name or tags of an item on a shelf, None = as before; return True if it is there."""
        given = {
            "name": name,
            "tags": None if tags is None else json.dumps(list(tags)) if tags else "",
        }
        values = {"owner": owner} | {
            key: value for key, value in given.items() if value is not None
        }
        with self._write_transaction() as connection:
            return bool(
                connection.execute(
                    SHELF.update()
                    .where(SHELF.c.owner == owner, SHELF.c.study == study)
                    .values(values)
                ).rowcount
            )

    def unshelve(self, owner: str, study: str) -> list[str]:
        """Remove an item from a shelf; return its runs that no other item uses.

        These runs are removed from the database. Empty while another shelf has the item.
        """
        with self._write_transaction() as connection:
            connection.execute(SHELF.delete().where(SHELF.c.owner == owner, SHELF.c.study == study))
            if connection.scalar(sa.select(sa.func.count()).where(SHELF.c.study == study)):
                return []
            others = USES.alias()
            shared = sa.exists().where(others.c.run == USES.c.run, others.c.study != study)
            unused_runs = list(
                connection.scalars(
                    sa.select(USES.c.run).where(USES.c.study == study, ~shared).order_by(USES.c.run)
                )
            )
            connection.execute(USES.delete().where(USES.c.study == study))
            connection.execute(STUDIES.delete().where(STUDIES.c.id == study))
            # In the same transaction, so that a new study with one of them runs it again.
            _delete_items(connection, RUN, unused_runs)
            return unused_runs

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def database_in(folder: Path) -> sa.URL:
    """Return the address of the SQLite database in a folder."""
    return sa.URL.create("sqlite", database=str(folder / DATABASE))


def _create_private_file(file: Path) -> None:
    """Create the file of a database if missing; make all its files readable by this user only.

    Notes
    -----
    An existing file is not opened: closing it would release the locks that connections of this
    process hold on it (POSIX). Another process that closes its last connection would then remove
    the write-ahead log that this process still writes to, and the two would see different data.
    """
    with suppress(OSError):  # SQLite says a moment later why it cannot be opened
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with suppress(OSError):
        # SQLite gives new files the permissions of the database.
        for part in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
            if part.exists():
                restrict_access(part, 0o600)


def _delete_items(connection: sa.Connection, kind: str, keys: Sequence[str]) -> None:
    """Delete items, and the owners of deleted traces."""
    for at in range(0, len(keys), _MAX_KEYS_PER_QUERY):
        some = keys[at : at + _MAX_KEYS_PER_QUERY]
        connection.execute(THINGS.delete().where(THINGS.c.kind == kind, THINGS.c.key.in_(some)))
        if kind == TRACE:
            connection.execute(OWNERS.delete().where(OWNERS.c.trace.in_(some)))


def _to_index_row(row: Any) -> IndexRow:
    """Return a database row as an `IndexRow`."""
    return IndexRow(
        row.kind,
        row.key,
        float(row.created_s),
        bool(row.complete),
        int(row.bytes),
        json.loads(row.manifest),
    )


def _to_shelved_recipe(row: Any) -> ShelvedRecipe:
    """Return a database row as a `ShelvedRecipe`."""
    tags = tuple(json.loads(row.tags)) if row.tags else ()
    counts = (int(row.runs or 0), int(row.there or 0), int(row.bytes or 0))
    return ShelvedRecipe(
        row.id,
        json.loads(row.document),
        row.title,
        row.name,
        tags,
        float(row.used_s),
        *counts,
    )


def _begin_transaction(connection: sa.Connection) -> None:
    """Begin a transaction with the lock that it needs, to avoid failures at a later write."""
    # A transaction that reads first and writes then would fail, not wait, if another one has
    # written in between.
    connection.exec_driver_sql(
        "BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN"
    )


def _configure_connection(connection: Any, _: Any) -> None:
    """Configure SQLite for concurrent use: readers never block, writers wait."""
    # Readers are not held up by a writer, and writers wait for each other instead of failing.
    connection.isolation_level = None
    for setting in (
        f"busy_timeout={_BUSY_S * 1000:.0f}",
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {setting}")

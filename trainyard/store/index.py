"""The database of the library: what is known of every run, and which comparisons and sweeps use it;
SQLite, or any address that SQLAlchemy understands.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from sim.errors import TrainyardError
from trainyard.store.claimers import is_dead
from trainyard.store.files import (
    DATABASE,
    close_to_others,
    place_of,
    shown_address,
    without_secrets,
)
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
"""Seconds between the times of two things kept while the clock is set back."""
_BUSY_S: Final = 30.0
"""How long a writer waits for another one."""
_CONNECT_S: Final = 10
_INSERT: Final[Mapping[str, Callable[[sa.Table], Any]]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}
"""Kind of database -> an insertion that says what to do where something is there already."""
_FAULTS: Final[Mapping[tuple[str, ...], str]] = {
    ("malformed", "not a database"): (
        "is damaged. Move the file away: whole results are listed again; names, sweeps and numbers"
        " are lost, unless repaired."
    ),
    (
        "disk is full",
        "disk full",
        "no space left",
    ): "cannot be written, because the disk is full. Free some space, then run again.",
    ("disk i/o error", "input/output error"): (
        "cannot be read or written (disk I/O error): its disk is full or fails. Free some space, or"
        " check the disk."
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
"""Signs in what a database says -> what to tell."""
MOST_RECIPES: Final = 100
"""Of one browser."""
_MOST_AT_ONCE: Final = 500
"""Values in one statement; SQLite takes no more than some hundreds."""


class Clock:
    """Where a library takes the time from."""

    def now_s(self) -> float:
        """Return seconds since the epoch; this clock can jump back or ahead."""
        return time.time()

    def steady_s(self) -> float:
        """Return seconds from any zero, which only go forward."""
        return time.monotonic()


class LibraryError(TrainyardError):
    """The database cannot be reached, read or written."""


RUN, TRACE, PROFILE = "run", "trace", "profile"
"""Kinds of things."""


@dataclass(frozen=True)
class IndexRow:
    """What the database knows of a run, an uploaded trace or a profile.

    Parameters
    ----------
    kind : {"run", "trace", "profile"}
        What it is.
    key : str
        Hash of the scenario, or of the contents.
    created_s : float, seconds
        When it was kept, or uploaded for the last time, since the epoch.
    complete : bool
        Whether its files are kept; of a run that is not, the numbers are.
    size : int, bytes
        Of its files.
    manifest : mapping
        What is known of it without reading its files.
    """

    kind: str
    key: str
    created_s: float
    complete: bool
    size: int
    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class ShelvedRecipe:
    """A comparison or a sweep on somebody's shelf.

    Parameters
    ----------
    study : str
        Hash of its document.
    document : mapping
        Its JSON.
    title : str
        What it is called unless named.
    name : str
        Given by its owner; "" = none.
    tags : tuple of str
        Given by its owner.
    used_s : float, seconds
        When it was last run or changed, since the epoch.
    runs, there : int
        Runs that it needs, and how many of them are kept.
    size : int, bytes
        Of the files of its runs.
    """

    study: str
    document: Mapping[str, Any]
    title: str
    name: str
    tags: tuple[str, ...]
    used_s: float
    runs: int
    there: int
    size: int


class Index:
    """The database.

    Parameters
    ----------
    address : str
        As SQLAlchemy takes it, e.g. ``sqlite:////folder/library.db`` or
        ``postgresql+psycopg://user@host/name``.
    clock : Clock, optional
        Where it takes the time from.

    Attributes
    ----------
    is_new : bool
        Whether its tables have just been made.

    Raises
    ------
    LibraryError
        If it cannot be reached or was made by a later version.
    """

    def __init__(self, address: str | sa.URL, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._address = (
            address.render_as_string(hide_password=False)
            if isinstance(address, sa.URL)
            else address
        )
        self._place, self._file, self._mark = shown_address(self._address), "", (0, 0)
        try:
            url = sa.make_url(address)
            # A machine that does not answer would otherwise be waited for, for minutes.
            timeout = (
                {"connect_timeout": _CONNECT_S} if url.get_backend_name() == "postgresql" else {}
            )
            self._engine = sa.create_engine(url, pool_pre_ping=bool(timeout), connect_args=timeout)
        except (SQLAlchemyError, ImportError, ValueError) as error:
            # A port that is no number may be a part of the password.
            why = "its port is no number" if isinstance(error, ValueError) else self._reason(error)
            raise LibraryError(
                f"The address {self._place} of the library cannot be used ({why}). Write it as"
                " kind://user@host:port/name."
            ) from error
        if self._engine.dialect.name not in _INSERT or (
            self._engine.dialect.name == "sqlite" and url.database in (None, "", ":memory:")
        ):
            raise LibraryError(
                f"A library cannot be kept at {self._place}. Use a file of SQLite, or PostgreSQL."
            )
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _as_several_use_it)
            sa.event.listen(self._engine, "begin", _begin)
            _close_database(Path(str(url.database)))
        self._writing = self._engine.execution_options(writes=True)
        self.is_new = self._migrate()
        self._file = str(url.database) if self._engine.dialect.name == "sqlite" else ""
        self._mark = place_of(self._file)
        self._stamped_s = self.newest_s()

    def stamp_s(self) -> float:
        """Return the time of something kept now, in seconds since the epoch: later than all that
        was kept before, also where the clock was set back.
        """
        self._stamped_s = max(self._clock.now_s(), self._stamped_s + _LATER_S)
        return self._stamped_s

    def newest_s(self) -> float:
        """Return when something was last kept or used, in seconds since the epoch; 0 = never."""
        with self._reading() as connection:
            found = (
                connection.scalar(sa.select(sa.func.max(column)))
                for column in (THINGS.c.created_s, SHELF.c.used_s)
            )
            return max(float(latest_s or 0.0) for latest_s in found)

    @property
    def lost(self) -> bool:
        """Whether its file was removed, or replaced by another, since it was opened; what is
        written then would go nowhere.
        """
        return bool(self._file) and place_of(self._file) != self._mark

    def _migrate(self) -> bool:
        """Bring the tables up to date; tell whether there were none."""
        with self._changing() as connection:
            VERSIONS.create(connection, checkfirst=True)
            known = connection.scalar(sa.select(sa.func.max(VERSIONS.c.version))) or 0
            if known > len(MIGRATIONS):
                raise LibraryError(
                    f"The library {self._place} was made by a later version of Trainyard (its"
                    f" tables have version {known}, this one knows {len(MIGRATIONS)}). Install the"
                    " later version, or use another library."
                )
            for at, step in enumerate(MIGRATIONS[known:], known + 1):
                step(connection)
                connection.execute(
                    VERSIONS.insert().values(version=at, since_s=self._clock.now_s())
                )
            return not known

    @contextmanager
    def _changing(self) -> Iterator[sa.Connection]:
        self._check()
        try:
            with self._writing.begin() as connection:
                if self._engine.dialect.name == "postgresql":
                    # Readers go on; writers of the few rows here take turns, as they do in SQLite.
                    connection.execute(sa.text("SELECT pg_advisory_xact_lock(7311)"))
                yield connection
        except SQLAlchemyError as error:
            raise self._fault(error) from error

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        self._check()
        try:
            with self._engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise self._fault(error) from error

    def _check(self) -> None:
        if self.lost:
            raise LibraryError(
                f"The library's database {self._place} was removed while it was in use. Start"
                " again: a new one lists whole results."
            )

    def _fault(self, error: SQLAlchemyError) -> LibraryError:
        reason = self._reason(error)
        for signs, told in _FAULTS.items():
            if any(sign in reason.casefold() for sign in signs):
                return LibraryError(f"The library's database {self._place} {told}")
        return LibraryError(
            f"The library's database {self._place} cannot be used ({reason}). Check that it is"
            " there and its address is right."
        )

    def _reason(self, error: BaseException) -> str:
        """Return the first line of what the database says, without secrets of its address."""
        told = str(getattr(error, "orig", None) or error).strip().splitlines()
        first = told[0].rstrip(".") if told else type(error).__name__
        return without_secrets(first, self._address)

    def put(self, row: IndexRow) -> None:
        """Enter a thing; what is there already stays, but numbers alone give way to a complete
        run.
        """
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
        with self._changing() as connection:
            connection.execute(statement)

    def claim(self, claimer: str, runs: Sequence[str]) -> set[str]:
        """Claim runs for a queue, or renew its claims; return the runs that the queue holds now.

        The other runs are claimed by other queues.
        """
        if not runs:
            return set()
        now_s = self._clock.now_s()
        body = {"claimer": claimer, "until_s": now_s + CLAIM_S}
        # A claim further ahead was made while the clock was wrong.
        holds = CLAIMS.c.until_s.between(now_s, now_s + 2 * CLAIM_S)
        with self._changing() as connection:
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
        """Give claims back, as far as the claimer holds them."""
        if runs:
            with self._changing() as connection:
                connection.execute(
                    CLAIMS.delete().where(CLAIMS.c.run.in_(runs), CLAIMS.c.claimer == claimer)
                )

    def renew(self, kind: str, key: str) -> None:
        """Count the age of a thing from now."""
        with self._changing() as connection:
            connection.execute(
                THINGS.update()
                .where(THINGS.c.kind == kind, THINGS.c.key == key)
                .values(created_s=self.stamp_s())
            )

    def own(self, owner: str, trace: str) -> None:
        """Let a browser be one of those that may delete a trace."""
        with self._changing() as connection:
            connection.execute(
                self._insert(OWNERS).values(owner=owner, trace=trace).on_conflict_do_nothing()
            )

    def owners(self, trace: str) -> set[str]:
        """Return who may delete a trace."""
        with self._reading() as connection:
            return set(connection.scalars(sa.select(OWNERS.c.owner).where(OWNERS.c.trace == trace)))

    def owned(self, owner: str) -> set[str]:
        """Return the traces that a browser uploaded."""
        with self._reading() as connection:
            return set(connection.scalars(sa.select(OWNERS.c.trace).where(OWNERS.c.owner == owner)))

    def disown(self, owner: str, trace: str) -> None:
        """Take that right back."""
        with self._changing() as connection:
            connection.execute(
                OWNERS.delete().where(OWNERS.c.owner == owner, OWNERS.c.trace == trace)
            )

    def keep_recipe(self, owner: str, fingerprint: str, text: str) -> None:
        """Keep how files of one kind are read, in place of what was known of them; of a browser's
        recipes the oldest give way.
        """
        body = {"text": text, "saved_s": self._clock.now_s()}
        own = RECIPES.c.owner == owner
        newest = (
            sa.select(RECIPES.c.fingerprint)
            .where(own)
            .order_by(RECIPES.c.saved_s.desc())
            .limit(MOST_RECIPES)
        )
        with self._changing() as connection:
            connection.execute(
                self._insert(RECIPES)
                .values(owner=owner, fingerprint=fingerprint, **body)
                .on_conflict_do_update(index_elements=["owner", "fingerprint"], set_=body)
            )
            connection.execute(RECIPES.delete().where(own, RECIPES.c.fingerprint.not_in(newest)))

    def recipe(self, owner: str, fingerprint: str) -> str:
        """Return the recipe of a browser for files of one kind; "" = it has none."""
        with self._reading() as connection:
            found = connection.scalar(
                sa.select(RECIPES.c.text).where(
                    RECIPES.c.owner == owner, RECIPES.c.fingerprint == fingerprint
                )
            )
        return found or ""

    def forget_recipe(self, owner: str, fingerprint: str) -> None:
        """Remove a recipe of a browser, if it is there."""
        with self._changing() as connection:
            connection.execute(
                RECIPES.delete().where(
                    RECIPES.c.owner == owner, RECIPES.c.fingerprint == fingerprint
                )
            )

    def _insert(self, table: sa.Table) -> Any:
        return _INSERT[self._engine.dialect.name](table)

    def get(self, kind: str, key: str) -> IndexRow | None:
        """Return what is known of a thing."""
        with self._reading() as connection:
            found = connection.execute(
                sa.select(THINGS).where(THINGS.c.kind == kind, THINGS.c.key == key)
            ).first()
        return _row(found) if found is not None else None

    def among(self, kind: str, keys: Iterable[str]) -> dict[str, IndexRow]:
        """Return what is known of these, as far as they are there."""
        wanted, found = list(dict.fromkeys(keys)), dict[str, IndexRow]()
        with self._reading() as connection:
            for at in range(0, len(wanted), _MOST_AT_ONCE):
                some = THINGS.c.key.in_(wanted[at : at + _MOST_AT_ONCE])
                found |= {
                    row.key: _row(row)
                    for row in connection.execute(
                        sa.select(THINGS).where(THINGS.c.kind == kind, some)
                    )
                }
        return found

    def rows(self, kind: str, *, complete: bool = False) -> list[IndexRow]:
        """Return what is known of all things of a kind, the newest first; `complete` = only of
        those whose files are kept.
        """
        wanted = sa.select(THINGS).where(
            THINGS.c.kind == kind, *([THINGS.c.complete] if complete else [])
        )
        with self._reading() as connection:
            return [
                _row(row)
                for row in connection.execute(
                    wanted.order_by(THINGS.c.created_s.desc(), THINGS.c.key)
                )
            ]

    def older(self, limit_s: float) -> list[tuple[str, str]]:
        """Return (kind, key) of what was kept before an instant, but for runs of comparisons that
        somebody has named or tagged.
        """
        named = (
            sa.select(USES.c.run)
            .join_from(USES, SHELF, USES.c.study == SHELF.c.study)
            .where((SHELF.c.name != "") | (SHELF.c.tags != ""))
        )
        kept = (THINGS.c.kind == RUN) & THINGS.c.key.in_(named)
        with self._reading() as connection:
            found = connection.execute(
                sa.select(THINGS.c.kind, THINGS.c.key).where(THINGS.c.created_s < limit_s, ~kept)
            )
            return [(row.kind, row.key) for row in found]

    def drop(self, kind: str, keys: Iterable[str]) -> None:
        """Forget things."""
        with self._changing() as connection:
            _forget(connection, kind, list(keys))

    def hollow(self, key: str) -> None:
        """Of a run whose files are lost, know the numbers only."""
        with self._changing() as connection:
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
        """Put a comparison or sweep on somebody's shelf under a name, or to its front if it stands
        there, under the name that it has.
        """
        with self._changing() as connection:
            body = {
                "id": study,
                "document": json.dumps(document, sort_keys=True, allow_nan=False),
                "title": title,
            }
            connection.execute(self._insert(STUDIES).values(body).on_conflict_do_nothing())
            if keys:
                # Row by row: one statement for a hundred thousand has more values than a database
                # takes.
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
        """Return what stands on a shelf, the last used first."""
        counts = (
            sa.func.count().label("runs"),
            sa.func.count(THINGS.c.key).label("there"),
            sa.func.sum(THINGS.c.bytes).label("bytes"),
        )
        runs = sa.select(USES.c.study, *counts)
        # Of this shelf only, because a server has many.
        own = USES.c.study.in_(sa.select(SHELF.c.study).where(SHELF.c.owner == owner))
        joined = runs.join_from(
            USES, THINGS, (USES.c.run == THINGS.c.key) & (THINGS.c.kind == RUN), isouter=True
        )
        counted = joined.where(own).group_by(USES.c.study).subquery()
        wanted = sa.select(
            STUDIES,
            SHELF.c.name,
            SHELF.c.tags,
            SHELF.c.used_s,
            counted.c.runs,
            counted.c.there,
            counted.c.bytes,
        )
        whole = wanted.join_from(SHELF, STUDIES, SHELF.c.study == STUDIES.c.id).join(
            counted, counted.c.study == STUDIES.c.id, isouter=True
        )
        with self._reading() as connection:
            found = connection.execute(
                whole.where(SHELF.c.owner == owner).order_by(SHELF.c.used_s.desc(), STUDIES.c.id)
            ).all()
        return [_kept(row) for row in found]

    def uses(self, study: str) -> list[str]:
        """Return the runs of something."""
        with self._reading() as connection:
            return list(
                connection.scalars(
                    sa.select(USES.c.run).where(USES.c.study == study).order_by(USES.c.run)
                )
            )

    def label(
        self, owner: str, study: str, *, name: str | None = None, tags: Sequence[str] | None = None
    ) -> bool:
        """Name or tag what stands on a shelf; tell whether it does."""
        given = {
            "name": name,
            "tags": None if tags is None else json.dumps(list(tags)) if tags else "",
        }
        values = {"owner": owner} | {
            key: value for key, value in given.items() if value is not None
        }
        with self._changing() as connection:
            return bool(
                connection.execute(
                    SHELF.update()
                    .where(SHELF.c.owner == owner, SHELF.c.study == study)
                    .values(values)
                ).rowcount
            )

    def unshelve(self, owner: str, study: str) -> list[str]:
        """Take something off a shelf, and off the list the runs that nothing on any shelf uses any
        more; return these.
        """
        with self._changing() as connection:
            connection.execute(SHELF.delete().where(SHELF.c.owner == owner, SHELF.c.study == study))
            if connection.scalar(sa.select(sa.func.count()).where(SHELF.c.study == study)):
                return []
            others = USES.alias()
            shared = sa.exists().where(others.c.run == USES.c.run, others.c.study != study)
            gone = list(
                connection.scalars(
                    sa.select(USES.c.run).where(USES.c.study == study, ~shared).order_by(USES.c.run)
                )
            )
            connection.execute(USES.delete().where(USES.c.study == study))
            connection.execute(STUDIES.delete().where(STUDIES.c.id == study))
            # At once: who shelves one of them next finds that it is to be run again.
            _forget(connection, RUN, gone)
            return gone

    def close(self) -> None:
        """Give back all connections."""
        self._engine.dispose()


def beside(folder: Path) -> sa.URL:
    """Return the address of the database in a folder, whatever characters its name has."""
    return sa.URL.create("sqlite", database=str(folder / DATABASE))


def _close_database(file: Path) -> None:
    """Make the file of a database, unless it is there, and close it to other users.

    Notes
    -----
    A file that is there is not opened: to close it would release the locks that connections of this
    process hold on it (POSIX). Another process that closes its last connection would then remove
    the write-ahead log in which this one goes on to write, and the two would see different data.
    """
    with suppress(OSError):  # SQLite says a moment later why it cannot be opened
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with suppress(OSError):
        # SQLite gives new parts the rights of the database.
        for part in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
            if part.exists():
                close_to_others(part, 0o600)


def _forget(connection: sa.Connection, kind: str, keys: Sequence[str]) -> None:
    for at in range(0, len(keys), _MOST_AT_ONCE):
        some = keys[at : at + _MOST_AT_ONCE]
        connection.execute(THINGS.delete().where(THINGS.c.kind == kind, THINGS.c.key.in_(some)))
        if kind == TRACE:
            connection.execute(OWNERS.delete().where(OWNERS.c.trace.in_(some)))


def _row(found: Any) -> IndexRow:
    return IndexRow(
        found.kind,
        found.key,
        float(found.created_s),
        bool(found.complete),
        int(found.bytes),
        json.loads(found.manifest),
    )


def _kept(found: Any) -> ShelvedRecipe:
    tags = tuple(json.loads(found.tags)) if found.tags else ()
    counts = (int(found.runs or 0), int(found.there or 0), int(found.bytes or 0))
    return ShelvedRecipe(
        found.id,
        json.loads(found.document),
        found.title,
        found.name,
        tags,
        float(found.used_s),
        *counts,
    )


def _begin(connection: sa.Connection) -> None:
    # A transaction that reads first and writes then would fail, not wait, if another one has
    # written in between.
    connection.exec_driver_sql(
        "BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN"
    )


def _as_several_use_it(connection: Any, _: Any) -> None:
    # Readers are not held up by a writer, and writers wait for each other instead of failing.
    connection.isolation_level = None
    for setting in (
        f"busy_timeout={_BUSY_S * 1000:.0f}",
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {setting}")

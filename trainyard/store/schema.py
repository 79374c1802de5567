"""Tables of the library's database, and the migrations of earlier versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import sqlalchemy as sa

_META: Final = sa.MetaData()
VERSIONS: Final = sa.Table(
    "versions",
    _META,
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("since_s", sa.Float, nullable=False),
)
THINGS: Final = sa.Table(
    "things",
    _META,
    sa.Column("kind", sa.String(16), primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("created_s", sa.Float, nullable=False),
    sa.Column("complete", sa.Boolean, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("manifest", sa.Text, nullable=False),
)
STUDIES: Final = sa.Table(
    "studies",
    _META,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
)
USES: Final = sa.Table(
    "uses",
    _META,
    sa.Column(
        "study", sa.String(64), sa.ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("run", sa.String(64), primary_key=True, index=True),
)
SHELF: Final = sa.Table(
    "shelf",
    _META,
    sa.Column("owner", sa.String(64), primary_key=True),
    sa.Column(
        "study", sa.String(64), sa.ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("tags", sa.Text, nullable=False),
    sa.Column("used_s", sa.Float, nullable=False),
)

OWNERS: Final = sa.Table(
    "owners",
    _META,
    sa.Column("owner", sa.String(64), primary_key=True),
    sa.Column("trace", sa.String(64), primary_key=True, index=True),
)
"""Browsers that uploaded a trace and may delete it."""
RECIPES: Final = sa.Table(
    "recipes",
    _META,
    sa.Column("owner", sa.String(64), primary_key=True),
    sa.Column("fingerprint", sa.String(16), primary_key=True),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("saved_s", sa.Float, nullable=False),
)
"""Recipes of a browser for files with the same columns."""

CLAIMS: Final = sa.Table(
    "claims",
    _META,
    sa.Column("run", sa.String(64), primary_key=True),
    sa.Column("claimer", sa.String(64), nullable=False),
    sa.Column("until_s", sa.Float, nullable=False),
)
"""Runs in progress, by queue; other processes wait for their results."""


def _create_library(connection: sa.Connection) -> None:
    _META.create_all(connection, [THINGS, STUDIES, USES, SHELF])


def _add_owners(connection: sa.Connection) -> None:
    _META.create_all(connection, [OWNERS])


def _add_recipes(connection: sa.Connection) -> None:
    _META.create_all(connection, [RECIPES])


def _add_claims(connection: sa.Connection) -> None:
    _META.create_all(connection, [CLAIMS])


MIGRATIONS: Final[tuple[Callable[[sa.Connection], None], ...]] = (
    _create_library,
    _add_owners,
    _add_recipes,
    _add_claims,
)
"""Migrations from version n to n + 1, in order; version 0 is an empty database."""

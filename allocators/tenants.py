"""To which tenant a job belongs: the column of the trace that names teams."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sim.contract import Ints, View, param

COLUMNS: Final = ("vc", "account", "partition", "user", "qos")
"""Columns that name tenants, in the order in which they are tried."""
COLUMN_WORDS: Final = {
    "vc": "virtual cluster",
    "account": "account",
    "partition": "partition",
    "user": "user",
    "qos": "quality of service",
}
"""What one of their names is."""


def tenant_param() -> Any:
    """Declare the parameter ``tenant``."""
    return param(
        "auto",
        title="Column of tenants",
        choices=("auto", *COLUMNS),
        labels={
            "auto": "The first that names several",
            **{column: word.capitalize() for column, word in COLUMN_WORDS.items()},
        },
        help=(
            "Column of the tenant of a job; auto = the first of vc, account, partition,"
            " user and qos with several names."
        ),
    )


def tenant_column(view: View, tenant: str) -> str:
    """Return the column that a value of the parameter ``tenant`` means in this run."""
    if tenant != "auto":
        return tenant
    return next(
        (one for one in COLUMNS if len(named(view, one)) > 1),
        next((one for one in COLUMNS if named(view, one)), COLUMNS[0]),
    )


def named(view: View, column: str) -> list[str]:
    """Return the tenants that a column names."""
    return [name for name in view.names(column) if name]


def gpus_to_share(view: View) -> Ints:
    """Return the GPUs per node, shape (nodes,), of which tenants without a configured quota own
    equal parts: of nodes that are there, in service or being repaired, because what is bought later
    gives nobody a quota. Where nothing is there yet, of all nodes.
    """
    now = view.installed
    return now if now.any() else np.array([node.gpus for node in view.cluster.nodes], np.int64)

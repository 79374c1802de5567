"""Tenant of each job: the trace column that names teams."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sim.contract import Ints, View, param

TENANT_COLUMNS: Final = ("vc", "account", "partition", "user", "qos")
"""Trace columns that may name tenants, in order of preference."""
TENANT_NOUNS: Final = {
    "vc": "virtual cluster",
    "account": "account",
    "partition": "partition",
    "user": "user",
    "qos": "quality of service",
}
"""Column -> the noun for one of its values."""


def tenant_param() -> Any:
    """Declare the policy parameter ``tenant``."""
    return param(
        "auto",
        title="Column of tenants",
        choices=("auto", *TENANT_COLUMNS),
        labels={
            "auto": "The first that names several",
            **{column: word.capitalize() for column, word in TENANT_NOUNS.items()},
        },
        help=(
            "Column of the tenant; auto = the first of vc, account, partition, user and qos"
            " with several names."
        ),
    )


def tenant_column(view: View, tenant: str) -> str:
    """Return the trace column that a value of the parameter ``tenant`` selects.

    For "auto" the first with several names, else the first with any name, else the first.
    """
    if tenant != "auto":
        return tenant
    return next(
        (one for one in TENANT_COLUMNS if len(tenant_names(view, one)) > 1),
        next((one for one in TENANT_COLUMNS if tenant_names(view, one)), TENANT_COLUMNS[0]),
    )


def tenant_names(view: View, column: str) -> list[str]:
    """Return the tenants that a column of the trace names."""
    return [name for name in view.names(column) if name]


def gpus_to_share(view: View) -> Ints:
    """Return the GPUs per node that tenants without a quota share equally.

    Shape (nodes,). Nodes bought later do not count; if no node is installed yet, all nodes do.
    """
    now = view.installed
    return now if now.any() else np.array([node.gpus for node in view.cluster.nodes], np.int64)

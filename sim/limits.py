"""Upper limits on cluster size: larger figures are typing errors and would exhaust memory."""

from __future__ import annotations

import os
import re
from typing import Final

from sim.errors import ClusterError

MAX_NODES: Final = 100_000
MAX_GPUS: Final = 1_000_000
"""GPUs of a cluster or node, unless the environment variable sets another limit."""
MAX_NAME_LENGTH: Final = 200
MAX_CHANGED_NODES: Final = 5_000_000
"""Nodes in all dated changes together; a node counts once per change."""
_VARIABLE: Final = "TRAINYARD_MOST_GPUS"


def gpu_limit() -> int:
    """Return the GPU limit of a cluster: ``TRAINYARD_MOST_GPUS``, or `MAX_GPUS`.

    Raises
    ------
    ClusterError
        If the variable is not a whole number from 1 to 2^31 - 1.
    """
    text = os.environ.get(_VARIABLE, "").strip() or str(MAX_GPUS)
    if not (re.fullmatch(r"[0-9]{1,10}", text) and 1 <= int(text) < 2**31):
        raise ClusterError(f"{_VARIABLE} = {text} is not a number of GPUs from 1 to {2**31 - 1:,}.")
    return int(text)


def check_sizes(where: str, nodes: float, gpus: float, rack_size: float = 0, *names: str) -> None:
    """Refuse counts of nodes, GPUs or racks, and names, above the limits.

    Parameters
    ----------
    where : str
        For the message, e.g. "Row 3 of the cluster".
    nodes, gpus, rack_size : float
        Counts, of one row or of the whole cluster.
    *names : str
        Names that every node would carry.

    Raises
    ------
    ClusterError
        If a count or a name is above its limit.
    """
    for what, count, most in (
        ("nodes", nodes, MAX_NODES),
        ("GPUs", gpus, gpu_limit()),
        ("nodes to a rack", rack_size, MAX_NODES),
    ):
        if count > most:
            figure = f"{count:,.0f}" if count < 1e15 else "far more"
            raise ClusterError(
                f"{where}: {figure} {what}; {most:,} is the most that is simulated. Lower it."
            )
    if (longest := max(map(len, names), default=0)) > MAX_NAME_LENGTH:
        raise ClusterError(
            f"{where}: a name of {longest:,} letters; {MAX_NAME_LENGTH} is the most. Shorten it."
        )

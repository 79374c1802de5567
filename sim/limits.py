"""How large a cluster may be: a larger one is a typing error, and would take the memory of the
machine.
"""

from __future__ import annotations

import os
import re
from typing import Final

from sim.errors import ClusterError

MOST_NODES: Final = 100_000
MOST_GPUS: Final = 1_000_000
"""GPUs of a cluster, and so of a node, unless the environment says otherwise."""
LONGEST_NAME: Final = 200
MOST_CHANGED: Final = 5_000_000
"""Nodes that dated changes name, each as often as it comes or goes."""
_VARIABLE: Final = "TRAINYARD_MOST_GPUS"


def most_gpus() -> int:
    """Return the most GPUs that a cluster may have: ``TRAINYARD_MOST_GPUS``, or `MOST_GPUS`.

    Raises
    ------
    ClusterError
        If the variable is no whole number from 1 to 2^31 - 1.
    """
    text = os.environ.get(_VARIABLE, "").strip() or str(MOST_GPUS)
    if not (re.fullmatch(r"[0-9]{1,10}", text) and 1 <= int(text) < 2**31):
        raise ClusterError(f"{_VARIABLE} = {text} is no number of GPUs from 1 to {2**31 - 1:,}.")
    return int(text)


def check_sizes(where: str, nodes: float, gpus: float, rack_size: float = 0, *names: str) -> None:
    """Refuse nodes, GPUs, racks or names beyond what is simulated.

    Parameters
    ----------
    where : str
        For the message, e.g. "Row 3 of the cluster".
    nodes, gpus, rack_size : float
        Counts, of a row or in all.
    *names : str
        That every node would have.

    Raises
    ------
    ClusterError
        In that case.
    """
    for what, count, most in (
        ("nodes", nodes, MOST_NODES),
        ("GPUs", gpus, most_gpus()),
        ("nodes to a rack", rack_size, MOST_NODES),
    ):
        if count > most:
            figure = f"{count:,.0f}" if count < 1e15 else "far more"
            raise ClusterError(
                f"{where}: {figure} {what}; {most:,} is the most that is simulated. Lower it."
            )
    if (longest := max(map(len, names), default=0)) > LONGEST_NAME:
        raise ClusterError(
            f"{where}: a name of {longest:,} letters; {LONGEST_NAME} is the most. Shorten it."
        )

"""Types of GPUs from ``gres.conf``, for nodes of which ``slurm.conf`` says only how many."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from allocators.sites.slurm.config import logical_lines
from sim.errors import ClusterError
from sim.hosts import expand_hosts
from trainyard.text import plural

_PAIR: Final = re.compile(r"(\w+)=(\S+)")
_UNTYPED: Final = re.compile(r"gpu(?::(\d{1,9}))?", re.IGNORECASE)


def with_types(
    nodes: Mapping[str, dict[str, str]], text: str
) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return nodes with the types of their GPUs, and remarks; a type that is given already stays.

    Parameters
    ----------
    nodes : mapping
        Host -> keyword in lower case -> value, of ``slurm.conf``.
    text : str
        ``gres.conf``; a line without NodeName is of all nodes.

    Raises
    ------
    ClusterError
        If a list of hosts or devices, or a number, cannot be read.
    """
    listed = _listed(text)
    made, typed, other = dict(nodes), 0, 0
    for host, fields in nodes.items():
        types = listed.get("", Counter[str]()) + listed.get(host, Counter[str]())
        parts = re.sub(r"\([^)]*\)", "", fields.get("gres", "")).split(",")
        at = next((at for at, part in enumerate(parts) if _UNTYPED.fullmatch(part.strip())), None)
        if at is None or not any(types):
            continue
        found = _UNTYPED.fullmatch(parts[at].strip())
        count = int(found[1] or 1) if found else 0
        other += types.total() != count
        if len(types) == 1:
            types = Counter(dict.fromkeys(types, count))
        if types.total() == count:
            parts[at] = ",".join(
                f"gpu:{kind}:{n}" if kind else f"gpu:{n}" for kind, n in types.items()
            )
            made[host] = fields | {"gres": ",".join(parts)}
            typed += 1
    counts = [
        (typed, "with GPU types from gres.conf"),
        (
            other,
            "of which gres.conf lists another number of GPUs: that of slurm.conf counts, and a type"
            " only where it is the only one",
        ),
    ]
    return made, [f"{plural(count, 'node')} {what}." for count, what in counts if count]


def _listed(text: str) -> dict[str, Counter[str]]:
    """Return the GPUs by type of each host, "" = of all; a type "" is not said."""
    made: dict[str, Counter[str]] = {}
    for line in logical_lines(text):
        pairs = {key.lower(): value.strip('"') for key, value in _PAIR.findall(line.text)}
        if pairs.get("name", "").lower() != "gpu":
            continue
        where = f"gres.conf, line {line.number}"
        devices = pairs.get("file", pairs.get("multiplefiles", ""))
        number = pairs.get("count", str(len(expand_hosts(devices, where)) if devices else 1))
        if not re.fullmatch(r"\d{1,9}", number):
            raise ClusterError(f"{where}: Count={number:.30} is not a number. Correct it.")
        for host in expand_hosts(pairs["nodename"], where) if "nodename" in pairs else [""]:
            made.setdefault(host, Counter())[pairs.get("type", "")] += int(number)
    return made

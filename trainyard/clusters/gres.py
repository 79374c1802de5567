"""GPU types from ``gres.conf``, for nodes without GPU types in ``slurm.conf``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from allocators.sites.slurm.config import logical_lines
from sim.errors import ClusterError
from sim.host_lists import expand_hosts
from trainyard.formatting import plural

_PAIR: Final = re.compile(r"(\w+)=(\S+)")
_UNTYPED: Final = re.compile(r"gpu(?::(\d{1,9}))?", re.IGNORECASE)


def add_gpu_types(
    nodes: Mapping[str, dict[str, str]], text: str
) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return nodes with GPU types from ``gres.conf``, and notes; types already given stay.

    A node gets types only if the number of GPUs agrees, or there is a single type.

    Parameters
    ----------
    nodes : mapping
        Host -> keyword in lower case -> value in ``slurm.conf``.
    text : str
        ``gres.conf``; lines without NodeName apply to all nodes.

    Raises
    ------
    ClusterError
        If a list of hosts or devices, or a number, is invalid.
    """
    gpus_by_host = _gpus_by_host(text)
    typed_nodes, typed, other = dict(nodes), 0, 0
    for host, fields in nodes.items():
        types = gpus_by_host.get("", Counter[str]()) + gpus_by_host.get(host, Counter[str]())
        parts = re.sub(r"\([^)]*\)", "", fields.get("gres", "")).split(",")
        index = next((i for i, part in enumerate(parts) if _UNTYPED.fullmatch(part.strip())), None)
        if index is None or not any(types):
            continue
        match = _UNTYPED.fullmatch(parts[index].strip())
        count = int(match[1] or 1) if match else 0
        other += types.total() != count
        if len(types) == 1:
            types = Counter(dict.fromkeys(types, count))
        if types.total() == count:
            parts[index] = ",".join(
                f"gpu:{kind}:{n}" if kind else f"gpu:{n}" for kind, n in types.items()
            )
            typed_nodes[host] = fields | {"gres": ",".join(parts)}
            typed += 1
    counts = [
        (typed, "with GPU types from gres.conf"),
        (
            other,
            "with another number of GPUs in gres.conf: the number in slurm.conf is used, and the"
            " type only if it is the only one",
        ),
    ]
    return typed_nodes, [f"{plural(count, 'node')} {what}." for count, what in counts if count]


def _gpus_by_host(text: str) -> dict[str, Counter[str]]:
    """Return host -> GPU type -> number; host "" = all hosts, type "" = no type given."""
    gpus_by_host: dict[str, Counter[str]] = {}
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
            gpus_by_host.setdefault(host, Counter())[pairs.get("type", "")] += int(number)
    return gpus_by_host

"""Lists of hosts as Slurm writes them: ``gpu[001-016,020],login``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from sim.errors import ClusterError
from sim.limits import MOST_NODES

_RANGE: Final = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?")
_NUMBERED: Final = re.compile(r"(.*?)(\d{1,12})")
_LONGEST: Final = 1000
"""Letters of one pattern of hosts."""


def hosts_of(text: str, name: str) -> list[str]:
    """Return the hosts of a list such as ``gpu[001-016,020],login``; brackets may occur several
    times in a name.

    Raises
    ------
    ClusterError
        If it is no such list, or longer than any cluster.
    """
    hosts = [
        host
        for part in re.findall(r"(?:[^,\[]|\[[^\]]*\]?)+", text)
        for host in _unfolded(part.strip(), name)
    ]
    if len(hosts) > MOST_NODES:
        raise ClusterError(
            f"{name}: {text[:60]} are {len(hosts):,} nodes; {MOST_NODES:,} is the most that is"
            " simulated. Leave some out."
        )
    return hosts


def host_list(hosts: Iterable[str]) -> str:
    """Write hosts as a list that `hosts_of` reads back, consecutive numbers as a range."""
    parts: list[str] = []
    prefix, width, first, last = "", 0, 0, -2

    def close() -> None:
        if last >= first:
            numbers = f"{first:0{width}d}"
            rest = f"-{last:0{width}d}"
            parts.append(f"{prefix}[{numbers}{rest}]" if last > first else f"{prefix}{numbers}")

    for host in hosts:
        found = _NUMBERED.fullmatch(host)
        if found is None:
            close()
            prefix, width, first, last = "", 0, 0, -2
            parts.append(host)
            continue
        begin, digits = found.groups()
        if (begin, len(digits)) == (prefix, width) and int(digits) == last + 1:
            last += 1
            continue
        close()
        prefix, width, first = begin, len(digits), int(digits)
        last = first
    close()
    return ",".join(parts)


def _unfolded(part: str, name: str) -> list[str]:
    if len(part) > _LONGEST:
        raise ClusterError(
            f"{name}: '{part[:60]}' … has {len(part):,} letters, so it is no list of hosts."
            " Correct it."
        )
    made = [""]
    for outside, inside in re.findall(r"([^\[\]]+)|\[([^\]]*)\]", part):
        ends = (
            [outside]
            if outside
            else [
                number
                for piece in inside.split(",")
                for number in _numbers(piece.strip(), part, name)
            ]
        )
        if len(made) * len(ends) > MOST_NODES:
            raise ClusterError(
                f"{name}: {part[:60]} are more than {MOST_NODES:,} nodes, the most that is"
                " simulated. Leave some out."
            )
        made = [host + end for host in made for end in ends]
    if part.count("[") != part.count("]") or (not part and made == [""]):
        raise ClusterError(
            f"{name}: '{part[:60]}' is not a list of hosts such as gpu[001-016,020]. Correct it."
        )
    return made


def _numbers(piece: str, part: str, name: str) -> list[str]:
    found = _RANGE.fullmatch(piece)
    if found is None or (
        found[2] and not int(found[1]) <= int(found[2]) <= int(found[1]) + MOST_NODES
    ):
        raise ClusterError(
            f"{name}: '{part[:60]}' is not a list of hosts such as gpu[001-016,020]. Correct it."
        )
    return [f"{at:0{len(found[1])}d}" for at in range(int(found[1]), int(found[2] or found[1]) + 1)]

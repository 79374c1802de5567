"""Host lists in the notation of Slurm: ``gpu[001-016,020],login``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from sim.errors import ClusterError
from sim.limits import MAX_NODES

_RANGE: Final = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?")
_NUMBERED: Final = re.compile(r"(.*?)(\d{1,12})")
_MAX_PATTERN_LENGTH: Final = 1000
"""Longest host pattern, in letters."""


def expand_hosts(text: str, name: str) -> list[str]:
    """Expand a host list such as ``gpu[001-016,020],login`` into host names.

    A name may contain several bracket expressions. `name` starts the error message.

    Raises
    ------
    ClusterError
        If the text is not a host list, or has more hosts than a cluster may have.
    """
    hosts = [
        host
        for part in re.findall(r"(?:[^,\[]|\[[^\]]*\]?)+", text)
        for host in _expand_pattern(part.strip(), name)
    ]
    if len(hosts) > MAX_NODES:
        raise ClusterError(
            f"{name}: {text[:60]} are {len(hosts):,} nodes; {MAX_NODES:,} is the most that is"
            " simulated. Leave some out."
        )
    return hosts


def compress_hosts(hosts: Iterable[str]) -> str:
    """Return a host list for `expand_hosts`; neighbors with consecutive numbers are a range."""
    parts: list[str] = []
    prefix, width, first, last = "", 0, 0, -2

    def append_range() -> None:
        """Append the pending range of numbered hosts to the parts."""
        if last >= first:
            numbers = f"{first:0{width}d}"
            rest = f"-{last:0{width}d}"
            parts.append(f"{prefix}[{numbers}{rest}]" if last > first else f"{prefix}{numbers}")

    for host in hosts:
        match = _NUMBERED.fullmatch(host)
        if match is None:
            append_range()
            prefix, width, first, last = "", 0, 0, -2
            parts.append(host)
            continue
        host_prefix, digits = match.groups()
        if (host_prefix, len(digits)) == (prefix, width) and int(digits) == last + 1:
            last += 1
            continue
        append_range()
        prefix, width, first = host_prefix, len(digits), int(digits)
        last = first
    append_range()
    return ",".join(parts)


def _expand_pattern(part: str, name: str) -> list[str]:
    """Expand one pattern such as ``gpu[001-016,020]`` into host names; refuse other text."""
    if len(part) > _MAX_PATTERN_LENGTH:
        raise ClusterError(
            f"{name}: '{part[:60]}' … has {len(part):,} letters, so it is not a list of hosts."
            " Correct it."
        )
    hosts = [""]
    for outside, inside in re.findall(r"([^\[\]]+)|\[([^\]]*)\]", part):
        ends = (
            [outside]
            if outside
            else [
                number
                for piece in inside.split(",")
                for number in _expand_range(piece.strip(), part, name)
            ]
        )
        if len(hosts) * len(ends) > MAX_NODES:
            raise ClusterError(
                f"{name}: {part[:60]} are more than {MAX_NODES:,} nodes, the most that is"
                " simulated. Leave some out."
            )
        hosts = [host + end for host in hosts for end in ends]
    if part.count("[") != part.count("]") or (not part and hosts == [""]):
        raise ClusterError(
            f"{name}: '{part[:60]}' is not a list of hosts such as gpu[001-016,020]. Correct it."
        )
    return hosts


def _expand_range(piece: str, part: str, name: str) -> list[str]:
    """Return the numbers of one range such as "001-016" as texts with leading zeros.

    A single number is a range. Refuses other text; `part` and `name` are for the message.
    """
    match = _RANGE.fullmatch(piece)
    if match is None or (
        match[2] and not int(match[1]) <= int(match[2]) <= int(match[1]) + MAX_NODES
    ):
        raise ClusterError(
            f"{name}: '{part[:60]}' is not a list of hosts such as gpu[001-016,020]. Correct it."
        )
    return [
        f"{number:0{len(match[1])}d}"
        for number in range(int(match[1]), int(match[2] or match[1]) + 1)
    ]

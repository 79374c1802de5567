"""What a job's constraint asks of its nodes: ``A&B``, ``(A|B)&C``, ``[A|B]``, ``A*2&B*1``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from allocators.sites.slurm.state import Mask

_TOKEN: Final = re.compile(r"\s*([&|()\[\]]|[^&|()\[\]\s]+)")
_COUNTED: Final = re.compile(r"(.+)\*(\d+)")


class NotSimulatedError(ValueError):
    """A constraint that is not simulated, in the words of a sentence."""

    def __str__(self) -> str:
        return f"constraint: {self.args[0]}: refused"


class Alternative(NamedTuple):
    """Nodes that a job may use, or how many of which."""

    nodes: Mask
    counts: tuple[tuple[Mask, int], ...] = ()


def alternatives(text: str, features: Mapping[str, Mask], every: Mask) -> tuple[Alternative, ...]:
    """Return what a constraint admits: the first alternative that a job fits counts.

    Parameters
    ----------
    text : str
        As the job was submitted with it.
    features : mapping
        Feature -> nodes that have it.
    every : int
        All nodes.

    Raises
    ------
    NotSimulatedError
        If it uses ``!`` or a feature to be set up by a reboot, or cannot be read.
    """
    if "!" in text or re.search(r"\bXAND\b|\bXOR\b", text):
        raise NotSimulatedError(f"{text:.60} uses an operator that is not simulated")
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text):
        raise NotSimulatedError(f"{text:.60} cannot be read")
    reading = _Reading(tokens, features, every)
    found = tuple(reading.whole())
    if reading.left:
        raise NotSimulatedError(f"{text:.60} cannot be read")
    return found


class _Reading:
    """A descent over the tokens: | binds less than &."""

    def __init__(self, tokens: list[str], features: Mapping[str, Mask], every: Mask) -> None:
        self.left = tokens
        self._features, self._every = features, every

    def whole(self) -> Iterator[Alternative]:
        """Yield the alternatives of the whole text."""
        if any(_COUNTED.fullmatch(token) for token in self.left):
            yield self._counts()
        else:
            yield from (Alternative(mask) for mask in self._either())

    def _counts(self) -> Alternative:
        words = [token for token in self.left if token not in {"[", "]", "(", ")", "&"}]
        if "|" in self.left:
            raise NotSimulatedError("a constraint with both counts and | is not simulated")
        self.left = []
        counts = []
        for word in words:
            found = _COUNTED.fullmatch(word)
            name, count = (found[1], int(found[2])) if found else (word, 1)
            counts.append((self._features.get(name, 0), count))
        union = 0
        for mask, _ in counts:
            union |= mask
        return Alternative(union, tuple(counts))

    def _either(self) -> list[Mask]:
        found = self._both()
        while self.left[:1] == ["|"]:
            self.left = self.left[1:]
            other = self._both()
            # Outside of brackets the nodes of a job may differ.
            found = [one | two for one in found for two in other]
        return found

    def _both(self) -> list[Mask]:
        found = self._one()
        while self.left[:1] == ["&"]:
            self.left = self.left[1:]
            other = self._one()
            found = [one & two for one in found for two in other]
        return found

    def _one(self) -> list[Mask]:
        if not self.left:
            raise NotSimulatedError("a constraint ends where a feature is missing")
        token, self.left = self.left[0], self.left[1:]
        if token == "(":
            found = self._either()
            self._close(")")
            return found
        if token == "[":
            found = self._both()
            while self.left[:1] == ["|"]:
                self.left = self.left[1:]
                found += self._both()
            self._close("]")
            return found
        if token in {")", "]", "&", "|"}:
            raise NotSimulatedError(f"a constraint has {token} where a feature is missing")
        return [self._features.get(token, 0) & self._every]

    def _close(self, bracket: str) -> None:
        if self.left[:1] != [bracket]:
            raise NotSimulatedError(f"a constraint lacks {bracket}")
        self.left = self.left[1:]

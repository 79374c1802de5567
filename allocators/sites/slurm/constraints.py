"""Job constraints on node features: ``A&B``, ``(A|B)&C``, ``[A|B]``, ``A*2&B*1``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from allocators.sites.slurm.state import Mask

_TOKEN: Final = re.compile(r"\s*([&|()\[\]]|[^&|()\[\]\s]+)")
_COUNTED: Final = re.compile(r"(.+)\*(\d+)")


class NotSimulatedError(ValueError):
    """A constraint that is not simulated; its text completes a sentence."""

    def __str__(self) -> str:
        return f"constraint: {self.args[0]}: refused"


class Alternative(NamedTuple):
    """Nodes that satisfy a constraint, and node counts required per feature mask."""

    nodes: Mask
    counts: tuple[tuple[Mask, int], ...] = ()


def alternatives(text: str, features: Mapping[str, Mask], every: Mask) -> tuple[Alternative, ...]:
    """Return the alternative node sets of a constraint; the first that a job fits applies.

    Parameters
    ----------
    text : str
        The constraint of the submission.
    features : mapping
        Mask of the nodes with each feature.
    every : int
        Mask of all nodes.

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
    parser = _ConstraintParser(tokens, features, every)
    parsed = tuple(parser.parse())
    if parser.tokens:
        raise NotSimulatedError(f"{text:.60} cannot be read")
    return parsed


class _ConstraintParser:
    """Recursive-descent parser over the tokens; ``|`` binds less tightly than ``&``."""

    def __init__(self, tokens: list[str], features: Mapping[str, Mask], every: Mask) -> None:
        self.tokens = tokens
        self._features, self._every = features, every

    def parse(self) -> Iterator[Alternative]:
        """Yield the alternatives of the constraint."""
        if any(_COUNTED.fullmatch(token) for token in self.tokens):
            yield self._parse_counts()
        else:
            yield from (Alternative(mask) for mask in self._parse_or())

    def _parse_counts(self) -> Alternative:
        """Parse a constraint with node counts, such as ``A*2&B*1``, to one alternative.

        Its nodes are the union of the features. All tokens are consumed.
        """
        words = [token for token in self.tokens if token not in {"[", "]", "(", ")", "&"}]
        if "|" in self.tokens:
            raise NotSimulatedError("a constraint with both counts and | is not simulated")
        self.tokens = []
        counts = []
        for word in words:
            match = _COUNTED.fullmatch(word)
            name, count = (match[1], int(match[2])) if match else (word, 1)
            counts.append((self._features.get(name, 0), count))
        union = 0
        for mask, _ in counts:
            union |= mask
        return Alternative(union, tuple(counts))

    def _parse_or(self) -> list[Mask]:
        """Parse operands joined by ``|``; return the union mask of each combination."""
        masks = self._parse_and()
        while self.tokens[:1] == ["|"]:
            self.tokens = self.tokens[1:]
            other = self._parse_and()
            # Outside of brackets the nodes of a job may differ.
            masks = [one | two for one in masks for two in other]
        return masks

    def _parse_and(self) -> list[Mask]:
        """Parse operands joined by ``&``; return the common nodes of each combination."""
        masks = self._parse_operand()
        while self.tokens[:1] == ["&"]:
            self.tokens = self.tokens[1:]
            other = self._parse_operand()
            masks = [one & two for one in masks for two in other]
        return masks

    def _parse_operand(self) -> list[Mask]:
        """Parse a feature or an expression in brackets to its masks of nodes.

        ``[A|B]`` gives one mask per alternative, ``(A|B)`` their union.
        """
        if not self.tokens:
            raise NotSimulatedError("a constraint ends where a feature is missing")
        token, self.tokens = self.tokens[0], self.tokens[1:]
        if token == "(":
            masks = self._parse_or()
            self._expect(")")
            return masks
        if token == "[":
            masks = self._parse_and()
            while self.tokens[:1] == ["|"]:
                self.tokens = self.tokens[1:]
                masks += self._parse_and()
            self._expect("]")
            return masks
        if token in {")", "]", "&", "|"}:
            raise NotSimulatedError(f"a constraint has {token} where a feature is missing")
        return [self._features.get(token, 0) & self._every]

    def _expect(self, bracket: str) -> None:
        """Consume a closing bracket, or raise an error if another token is next."""
        if self.tokens[:1] != [bracket]:
            raise NotSimulatedError(f"a constraint lacks {bracket}")
        self.tokens = self.tokens[1:]

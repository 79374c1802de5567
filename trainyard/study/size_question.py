"""The document of a size search: varying node groups, their ranges, and the target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.metrics.registry import COLUMNS
from trainyard.study.document import Document, checked_fields, number, whole_number
from trainyard.study.size_search import MAX_CHECKED, CountSearch, MixSearch, Size, max_tried_sizes
from trainyard.study.study import Study

MAX_SIZES: Final = 10_000
_SAME: Final = 1e-9
LOWER: Final = {name: one.better == "lower" for name, one in COLUMNS.items() if one.better}
"""Metric that can have a target -> whether lower is better."""


@dataclass(frozen=True)
class SizeQuestion(Document):
    """A search for the number of nodes, of one group or two, that meets a target.

    Parameters
    ----------
    study : Study
        Jobs, policies, repeats, and the cluster whose groups of nodes vary.
    groups : tuple of int
        Indices of one or two node groups of the cluster.
    low, high : tuple of int
        The range of each, both ends included.
    metric : str
        Key of `LOWER`.
    limit : float
        Target value of the metric, in its unit (seconds, share, USD).
    check : bool
        Whether to try sizes below the answer too, see `trainyard.study.size_search.CountSearch`;
        one group only.
    budget_per_h : float, USD per hour
        Maximum price of the whole cluster; inf = no limit.
    begin : int
        First size to try for one group, from which the search doubles; 0 = search the whole range.

    Raises
    ------
    ParameterError
        If a value is invalid, or contradicts another.
    """

    study: Study
    groups: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    metric: str = "queue_p95_s"
    limit: float = 600.0
    check: bool = True
    budget_per_h: float = math.inf
    begin: int = 0

    def __post_init__(self) -> None:
        """Convert and validate the values."""
        for name in ("groups", "low", "high"):
            object.__setattr__(
                self, name, tuple(whole_number(name, value) for value in getattr(self, name))
            )
        object.__setattr__(self, "begin", whole_number("begin", self.begin))
        object.__setattr__(self, "limit", number("limit", self.limit))
        object.__setattr__(self, "budget_per_h", number("budget_per_h", self.budget_per_h))
        group_count = len(self.study.base.cluster.groups)
        if (
            len(self.groups) not in (1, 2)
            or len(set(self.groups)) < len(self.groups)
            or not all(group < group_count for group in self.groups)
        ):
            raise ParameterError(
                "One or two different groups of nodes may vary, numbered from 0 to"
                f" {group_count - 1}; {list(self.groups)} are not."
            )
        self._check_ranges()

    def _check_ranges(self) -> None:
        """Raise ParameterError if ranges, budget, metric or target are invalid."""
        if len(self.low) != len(self.groups) or len(self.high) != len(self.groups):
            raise ParameterError(
                "Each group of nodes that varies needs a range: give as many ends as groups."
            )
        if not isinstance(self.check, bool):
            raise ParameterError(f"check = {self.check} is neither true nor false.")
        if any(high - low >= MAX_SIZES for low, high in zip(self.low, self.high, strict=True)):
            raise ParameterError(
                f"A range may have at most {MAX_SIZES:,} sizes. Narrow it, or make the nodes"
                " larger."
            )
        if math.isinf(self.limit):
            raise ParameterError("The target must be a finite number.")
        if self.metric not in LOWER:
            raise ParameterError(
                f"No target can be set for '{self.metric}'. Choose one of {', '.join(LOWER)}."
            )
        self.search()

    @property
    def lower(self) -> bool:
        """Whether the metric must stay at or below the limit."""
        return LOWER[self.metric]

    @property
    def most_runs(self) -> int:
        """Maximum number of runs: sizes tried, times policies, times repeats."""
        sizes = [high - low + 1 for low, high in zip(self.low, self._affordable(), strict=True)]
        bisected = math.ceil(math.log2(sizes[0] + 1)) + 2
        if len(sizes) > 1:
            tried = sum(sizes) + 3
        elif self.begin:
            tried = min(sizes[0], max_tried_sizes(self.high[0], self.begin))
        else:
            tried = min(sizes[0], bisected + MAX_CHECKED * self.check)
        return tried * len(self.study.allocators) * self.study.repeats

    def search(self) -> CountSearch | MixSearch:
        """Return a new search: `CountSearch` for one group of nodes, `MixSearch` for two."""
        if len(self.groups) == 1:
            high = self._affordable()[0]
            return CountSearch(self.low[0], high, check=self.check, begin=min(self.begin, high))
        first, second = (self._price_per_node(group) for group in self.groups)
        return MixSearch(
            (self.low[0], self.low[1]),
            (self.high[0], self.high[1]),
            (first, second),
            self.budget_per_h - self._fixed_per_h(),
        )

    def _affordable(self) -> tuple[int, ...]:
        """Return the upper ends; for one group at most as many nodes as the budget allows.

        Raises ParameterError if the lower end is already too expensive.
        """
        if (
            len(self.groups) > 1
            or self.price_per_h(self.high) <= self.budget_per_h
            or self.low[0] > self.high[0]
        ):
            return self.high
        if (least := self.price_per_h(self.low)) > self.budget_per_h:
            more = f"{least:g} USD per hour, which is more than {self.budget_per_h:g}"
            raise ParameterError(
                f"Even the fewest nodes make the cluster cost {more}. Raise the budget."
            )
        return (
            min(
                self.high[0],
                int(
                    (self.budget_per_h - self._fixed_per_h()) / self._price_per_node(self.groups[0])
                    + _SAME
                ),
            ),
        )

    def _fixed_per_h(self) -> float:
        """Return the price per hour of the nodes that do not vary."""
        return sum(
            group.count * self._price_per_node(at)
            for at, group in enumerate(self.study.base.cluster.groups)
            if at not in self.groups
        )

    def _price_per_node(self, group_index: int) -> float:
        """Return the price per hour of a node of a group."""
        base = self.study.base.cluster
        return Cluster((replace(base.groups[group_index], count=1),), base.types).price_per_hour

    def cluster(self, size: Size) -> Cluster:
        """Return the cluster with these numbers of nodes in the varying groups.

        Empty groups, and dated changes of missing nodes, are left out.

        Raises
        ------
        TrainyardError
            If there are no nodes, or too many.
        """
        base = self.study.base.cluster
        counts = dict(zip(self.groups, size, strict=True))
        groups = [
            replace(group, count=counts.get(at, group.count))
            for at, group in enumerate(base.groups)
        ]
        before, after = (
            list(accumulate((group.count for group in of), initial=0))
            for of in (base.groups, groups)
        )
        # A dated change refers to the k-th node of its group, whatever groups precede it.
        places = {
            before[at] + k: after[at] + k
            for at, group in enumerate(groups)
            for k in range(min(base.groups[at].count, group.count))
        }
        kept = (
            replace(change, nodes=tuple(places[node] for node in change.nodes if node in places))
            for change in base.changes
        )
        return replace(
            base,
            groups=tuple(group for group in groups if group.count),
            changes=tuple(change for change in kept if change.nodes),
        )

    def price_per_h(self, size: Size) -> float:
        """Return the price per hour of the whole cluster with these numbers of varying nodes."""
        counts = dict(zip(self.groups, size, strict=True))
        groups = self.study.base.cluster.groups
        return sum(
            counts.get(at, group.count) * self._price_per_node(at)
            for at, group in enumerate(groups)
        )

    def study_at(self, size: Size) -> Study:
        """Return the study on a cluster of this size."""
        return replace(self.study, base=replace(self.study.base, cluster=self.cluster(size)))

    def to_json(self) -> dict[str, Any]:
        """Return the search as plain values, of kind "plan"; no budget = None."""
        budget = None if math.isinf(self.budget_per_h) else self.budget_per_h
        plain = {
            "groups": list(self.groups),
            "low": list(self.low),
            "high": list(self.high),
            "metric": self.metric,
            "limit": self.limit,
            "check": self.check,
        }
        document = {"kind": "plan", "study": self.study.to_json(), **plain, "budget_per_h": budget}
        # Omitted if 0, so that the ids of older documents stay the same.
        return document | ({"begin": self.begin} if self.begin else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SizeQuestion:
        """Return a size search from a document of `to_json`.

        Raises
        ------
        TrainyardError
            If a key is missing or unknown, or a value cannot be used.
        """
        fields = checked_fields("plan", data, cls)
        if not isinstance(fields.get("study"), Mapping):
            raise ParameterError("A size search needs 'study' (from a file that Save wrote).")
        study = Study.from_json(fields.pop("study"))
        for name in ("groups", "low", "high"):
            if not isinstance(fields.get(name), Sequence) or isinstance(fields.get(name), str):
                raise ParameterError(f"A size search needs '{name}', a list of whole numbers.")
            fields[name] = tuple(fields[name])
        fields["metric"] = str(fields.get("metric", cls.metric))
        if fields.get("budget_per_h", 0) is None:
            fields["budget_per_h"] = math.inf
        return cls(study, **fields)

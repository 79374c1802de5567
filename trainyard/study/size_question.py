"""The document of a size search: varying and offered node groups, ranges, and the target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

from sim.cluster import Cluster, NodeGroup
from sim.errors import ParameterError
from sim.metrics.registry import COLUMNS
from trainyard.study.document import Document, checked_fields, number, whole_number
from trainyard.study.size_search import MAX_TYPES, MixSearch, Size
from trainyard.study.study import Study

MAX_SIZES: Final = 10_000
HOURS_A_MONTH: Final = 730.0
LOWER: Final = {name: one.better == "lower" for name, one in COLUMNS.items() if one.better}
"""Metric that can have a target -> whether lower is better."""


@dataclass(frozen=True)
class SizeQuestion(Document):
    """A search for the cheapest numbers of nodes, of up to four types, that meet a target.

    Parameters
    ----------
    study : Study
        Jobs, policies, repeats, and the cluster whose groups of nodes vary.
    groups : tuple of int
        Indices of node groups: of the cluster, then of `offers`.
    low, high : tuple of int
        The range of each, both ends included.
    metric : str
        Key of `LOWER`.
    limit : float
        Target value of the metric, in its unit (seconds, share, USD).
    check : bool
        Whether to try mixes below near misses too, see `trainyard.study.size_search.MixSearch`.
    budget_per_h : float, USD per hour
        Maximum price of the whole cluster; inf = no limit.
    begin : int
        First size to try for one group, from which the search doubles; 0 = the end of the range.
    offers : tuple of NodeGroup
        Node groups that the cluster lacks and that can be bought; their counts are ignored.

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
    offers: tuple[NodeGroup, ...] = ()

    def __post_init__(self) -> None:
        """Convert and validate the values."""
        for name in ("groups", "low", "high"):
            object.__setattr__(
                self, name, tuple(whole_number(name, value) for value in getattr(self, name))
            )
        if self.offers:
            offers = Cluster(tuple(replace(group, count=1) for group in self.offers)).groups
            object.__setattr__(self, "offers", offers)
        object.__setattr__(self, "begin", whole_number("begin", self.begin))
        object.__setattr__(self, "limit", number("limit", self.limit))
        object.__setattr__(self, "budget_per_h", number("budget_per_h", self.budget_per_h))
        group_count = len(self.rows)
        if (
            not 1 <= len(self.groups) <= MAX_TYPES
            or len(set(self.groups)) < len(self.groups)
            or not all(group < group_count for group in self.groups)
        ):
            raise ParameterError(
                f"One to {MAX_TYPES} different groups of nodes may vary, numbered from 0 to"
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
        if self.begin and not self.low[0] <= self.begin <= self.high[0]:
            raise ParameterError(
                f"The search begins at {self.begin} nodes, which is not between {self.low[0]} and"
                f" {self.high[0]}."
            )
        self.search()

    @property
    def lower(self) -> bool:
        """Whether the metric must stay at or below the limit."""
        return LOWER[self.metric]

    @property
    def rows(self) -> tuple[NodeGroup, ...]:
        """Node groups of the cluster, then the offers with no nodes."""
        return (
            *self.study.base.cluster.groups,
            *(replace(group, count=0) for group in self.offers),
        )

    @property
    def owned(self) -> Size:
        """Numbers of nodes of the varying groups in the cluster of the study."""
        return tuple(self.rows[group].count for group in self.groups)

    @property
    def expected_runs(self) -> int:
        """Typical number of runs: mixes, times policies, times repeats.

        All policies run the mixes of each: measured 32 for 3 policies, 40 for 6, 46 for 12.
        """
        more, policies = self.search().most_alone, len(self.study.allocators)
        alone = 1 + sum(2 * count.bit_length() for count in more)
        typical = round(alone * (1 + math.log2(max(policies, 3) / 3) / 4))
        return min(math.prod(count + 1 for count in more), typical) * policies * self.study.repeats

    def search(self) -> MixSearch:
        """Return a new search; it starts from the owned nodes if none of them can go."""
        first: tuple[Size, ...] = ()
        if self.low == self.owned:
            first = (self.low,)
        elif self.begin:
            first = ((self.begin,), (min(2 * self.begin, self.high[0]),))
        return MixSearch(
            self.low,
            self.high,
            [self._price_per_node(group) for group in self.groups],
            self.budget_per_h - self._fixed_per_h(),
            check=self.check,
            first=first,
        )

    def _fixed_per_h(self) -> float:
        """Return the price per hour of the nodes that do not vary."""
        return sum(
            group.count * self._price_per_node(at)
            for at, group in enumerate(self.rows)
            if at not in self.groups
        )

    def _price_per_node(self, group_index: int) -> float:
        """Return the price per hour of a node of a group."""
        base, row = self.study.base.cluster, self.rows[group_index]
        return Cluster((replace(row, count=1),), base.types).price_per_hour

    def cluster(self, size: Size) -> Cluster:
        """Return the cluster with these numbers of nodes in the varying groups.

        Empty groups, and dated changes of missing nodes, are left out.

        Raises
        ------
        TrainyardError
            If there are no nodes, or too many.
        """
        base, rows = self.study.base.cluster, self.rows
        counts = dict(zip(self.groups, size, strict=True))
        groups = [
            replace(group, count=counts.get(at, group.count)) for at, group in enumerate(rows)
        ]
        before, after = (
            list(accumulate((group.count for group in of), initial=0)) for of in (rows, groups)
        )
        # A dated change refers to the k-th node of its group, whatever groups precede it.
        places = {
            before[at] + k: after[at] + k
            for at, group in enumerate(groups)
            for k in range(min(rows[at].count, group.count))
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
        return sum(
            counts.get(at, group.count) * self._price_per_node(at)
            for at, group in enumerate(self.rows)
        )

    def extra_per_month(self, size: Size) -> float:
        """Return the price per month of a mix beyond that of the owned nodes, in USD."""
        return (self.price_per_h(size) - self.price_per_h(self.owned)) * HOURS_A_MONTH

    @property
    def budget_per_month(self) -> float:
        """Maximum price per month beyond that of the owned nodes, in USD; inf = no limit."""
        return (self.budget_per_h - self.price_per_h(self.owned)) * HOURS_A_MONTH

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
        # Omitted if empty, so that the ids of older documents stay the same.
        offers = Cluster(self.offers).to_json()["groups"] if self.offers else []
        more = {"begin": self.begin, "offers": offers}
        return document | {name: value for name, value in more.items() if value}

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
        if fields.get("offers"):
            fields["offers"] = Cluster.from_json({"groups": fields["offers"]}).groups
        return cls(study, **fields)

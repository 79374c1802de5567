"""What a replay of a paper is made of: the paper, arms, measures, claims and axes, and the scenario
of each arm at each point.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from trainyard.study.scenario import Scenario
from trainyard.study.settings import seeded, with_settings

Kind = Literal["ratio", "difference", "value"]

KINDS: Final = ("ratio", "difference", "value")
CERTAINTIES: Final = (
    "read in the abstract",
    "read in code or notebooks",
    "from memory",
    "our reading",
    "expected (prototype)",
)
BANDS: Final = (
    "published ± 20 %",
    "published ± 5 %",
    "around published",
    "authors' code",
    "prototype",
    "direction",
)
"""Where a band comes from; docs/reference/replays.md says what each means."""
MARGINS: Final = {"published ± 20 %": 0.2, "published ± 5 %": 0.05}
BY_CONSTRUCTION: Final = "by construction"
AFTER_RESULTS: Final = "band drawn after results"


@dataclass(frozen=True)
class Paper:
    """Where the claim was published."""

    title: str
    authors: str
    venue: str
    year: int
    link: str


@dataclass(frozen=True)
class Arm:
    """One of the policies that are compared.

    Parameters
    ----------
    name : str
        Short, as in the names of claims.
    title : str
        What the user reads.
    set : tuple of str
        What it changes in the base scenario, each ``path=value`` as for ``--set``.
    """

    name: str
    title: str
    set: tuple[str, ...]


@dataclass(frozen=True)
class Bound(Arm):
    """What stands in the place of an arm without being one: figures that a function computes from
    the scenario of an arm.

    Parameters
    ----------
    of : str
        The arm whose jobs, machines, speeds and policy it is computed from.
    by : str
        One of `trainyard.labs.replays.bounds.BOUNDS`.
    """

    of: str
    by: str


@dataclass(frozen=True)
class ReplayMeasure:
    """What is compared: a number of the summary of an arm, alone or against that of another arm.

    Parameters
    ----------
    metric : str
        One of `sim.metrics.registry.NUMBERS`.
    arm, against : str
        Names of arms or bounds; `against` is "" for a plain value.
    kind : {"ratio", "difference", "value"}
        arm / against, arm - against, or arm alone; each of means over seeds.
    title : str
        What the user reads; "" = `text`.
    """

    metric: str
    arm: str
    against: str = ""
    kind: Kind = "ratio"
    title: str = ""

    @property
    def text(self) -> str:
        """A name made of metric and arms, e.g. ``queue_mean_s mip/sticky``."""
        sign = {"ratio": "/", "difference": "-", "value": ""}[self.kind]
        return f"{self.metric} {self.arm}{sign}{self.against}"

    @property
    def label(self) -> str:
        """The title, or the text if there is none."""
        return self.title or self.text

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that it needs."""
        return (self.arm, self.against) if self.against else (self.arm,)


class ReplayPoint(NamedTuple):
    """A place on an axis; without an axis the base scenario."""

    axis: str = ""
    value: float = 0.0

    def __str__(self) -> str:
        return f"{self.axis}={self.value:g}" if self.axis else ""


BASE: Final = ReplayPoint()


@dataclass(frozen=True)
class Claim:
    """A measure at a point, with what was published of it and where the simulated figure should
    lie.

    Parameters
    ----------
    measure : ReplayMeasure
        What is compared.
    at : ReplayPoint
        Where.
    published : float or None
        The published figure in the form of the measure; None = there is none.
    published_text : str
        The same in words, with its "up to".
    band : (float, float) or None
        Where the simulated figure is expected, the high end perhaps inf; None = it is shown for
        information.
    certainty : str
        One of `CERTAINTIES`: how well the claim is known.
    band_from : str
        One of `BANDS`; "" without a band.
    since : ReplayPoint or None
        Another place: then the claim is about how the measure changes from there, as a ratio, or a
        difference of differences.
    by_construction : bool
        Whether a setting of the replay was chosen so that the figure is met.
    """

    measure: ReplayMeasure
    at: ReplayPoint
    published: float | None
    published_text: str
    band: tuple[float, float] | None
    certainty: str
    band_from: str = ""
    since: ReplayPoint | None = None
    by_construction: bool = False

    @property
    def mark(self) -> str:
        """Why a verdict on the claim proves nothing, so that no tally counts it; "" = it counts.

        A band from a prototype of ours, or a direction that nobody published, was drawn after
        results were known.
        """
        if self.by_construction:
            return BY_CONSTRUCTION
        unpublished = self.band_from == "direction" and not self.published_text
        return AFTER_RESULTS if self.band_from == "prototype" or unpublished else ""

    @property
    def text(self) -> str:
        """A name that tells all claims of a replay apart, e.g. ``queue_mean_s mip/sticky at
        per_h=10``.
        """
        if self.since is not None:
            return f"{self.measure.text} from {self.since} to {self.at}"
        return f"{self.measure.text} at {self.at}" if self.at.axis else self.measure.text

    @property
    def points(self) -> tuple[ReplayPoint, ...]:
        """The places that it needs."""
        return (self.at,) if self.since is None else (self.at, self.since)

    @property
    def figure(self) -> ReplayMeasure:
        """The measure in the form of the figure: the change of a value is a ratio."""
        return (
            replace(self.measure, kind="ratio")
            if self.since is not None and self.measure.kind == "value"
            else self.measure
        )


@dataclass(frozen=True)
class ReplayAxis:
    """A quantity that is varied: each measure becomes a curve over it.

    Parameters
    ----------
    name : str
        As in the names of claims.
    title, unit : str
        For the chart.
    values : tuple of float
        Ascending.
    fixed : tuple of str
        Changes of the scenario along the whole axis, for every arm.
    sets : tuple of tuple of str
        Changes at each value.
    only : tuple of str
        The arms and bounds to which `sets` apply; for the others it makes no difference.
    claimed : tuple of float
        The values for which something was published, or is expected.
    measures : tuple of ReplayMeasure
        The curves.
    seeds : int
        Runs per point and arm, at the points that no claim is about.
    where : str
        What is fixed along the axis, in words, e.g. "at 12 jobs/h"; may be empty.
    """

    name: str
    title: str
    unit: str
    values: tuple[float, ...]
    fixed: tuple[str, ...]
    sets: tuple[tuple[str, ...], ...]
    only: tuple[str, ...]
    claimed: tuple[float, ...]
    measures: tuple[ReplayMeasure, ...]
    seeds: int
    where: str = ""

    @property
    def label(self) -> str:
        """The title with its unit, e.g. ``Arrival rate (jobs/h)``."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def heading(self) -> str:
        """The label, and what is fixed along the axis."""
        return f"{self.label}, {self.where}" if self.where else self.label

    def spot(self, *values: float) -> str:
        """Return where values lie, as in the label of a row: with unit or title, and what is fixed
        along the axis.
        """
        ends = " to ".join(f"{value:g}" for value in values)
        noun = self.unit or (
            self.title.lower().removesuffix("s") if values[-1] == 1 else self.title.lower()
        )
        of = f" ({self.title.lower()})" if self.unit in ("s", "h") else ""
        return f"{'at' if len(values) == 1 else 'from'} {ends} {noun}{of}" + (
            f", {self.where}" if self.where else ""
        )

    def place(self, value: float) -> str:
        """Return a value with its unit, and what is fixed along the axis."""
        return f"{self.title} {value:g} {self.unit}".rstrip() + (
            f", {self.where}" if self.where else ""
        )


@dataclass(frozen=True)
class Replay:
    """One published comparison, ready to be repeated.

    Parameters
    ----------
    name, title : str
        Key and heading.
    paper : Paper
        Where it was published.
    claim, known, reading, explain, budget : str
        What is published; what is known of the paper; what is our reading; what to notice (with
        numbers of the run in braces, see `trainyard.labs.replays.explained`); how much is run, and
        why so much.
    base : Scenario
        What all arms share.
    arms, axes, claims : tuple
        What is compared, varied and claimed; axes in the order in which they are drawn.
    seeds : int
        Runs per arm for the claims, with seeds 0, 1, ...
    run_s : float, seconds
        Processor time of a run, on average, as measured when the replay was written: what a front
        end says before it runs; 0 = not known.
    bounds : tuple of Bound
        What is computed beside the arms.
    """

    name: str
    title: str
    paper: Paper
    claim: str
    known: str
    reading: str
    explain: str
    budget: str
    base: Scenario
    arms: tuple[Arm, ...]
    axes: tuple[ReplayAxis, ...]
    claims: tuple[Claim, ...]
    seeds: int
    run_s: float = 0.0
    bounds: tuple[Bound, ...] = ()

    def arm(self, name: str) -> Arm:
        """Return an arm or a bound by its name."""
        return next(arm for arm in (*self.arms, *self.bounds) if arm.name == name)

    def bound(self, name: str) -> Bound | None:
        """Return a bound by its name, None if that is the name of an arm."""
        return next((bound for bound in self.bounds if bound.name == name), None)

    def is_line(self, measure: ReplayMeasure) -> bool:
        """Tell whether a measure is about a bound, so that it is drawn as a line and not as a
        result.
        """
        return self.bound(measure.arm) is not None

    def axis(self, name: str) -> ReplayAxis:
        """Return an axis by its name."""
        return next(axis for axis in self.axes if axis.name == name)

    def label(self, claim: Claim) -> str:
        """Return what the user reads of a claim: its measure, and where."""
        if not claim.at.axis:
            return claim.measure.label
        axis = self.axis(claim.at.axis)
        return (
            f"{claim.measure.label},"
            f" {axis.spot(*(point.value for point in reversed(claim.points)))}"
        )

    def scenario(self, arm: str, at: ReplayPoint = BASE, seed: int = 0) -> Scenario:
        """Return what is run for an arm at a point with a seed, or what a bound is computed from.

        Raises
        ------
        ParameterError
            If the changes lead nowhere, or a value cannot be used.

        Notes
        -----
        First the changes of the arm, then those of the axis, then the seed: of the scenario, and of
        the jobs if they are made. So all arms meet the same jobs in the same run.
        """
        changes = list(self.arm(arm).set)
        if at.axis:
            axis = self.axis(at.axis)
            changes += axis.fixed
            changes += axis.sets[axis.values.index(at.value)] if arm in axis.only else ()
        return seeded(Scenario.from_json(with_settings(self.base.to_json(), changes)), seed)

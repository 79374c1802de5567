"""Parts of a replay: paper, arms, measures, claims, axes, and the scenario of each run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from trainyard.study.scenario import Scenario
from trainyard.study.settings import with_seed, with_settings

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
"""Origin of a band; docs/reference/replays.md explains each."""
MARGINS: Final = {"published ± 20 %": 0.2, "published ± 5 %": 0.05}
BY_CONSTRUCTION: Final = "by construction"
AFTER_RESULTS: Final = "range set after results"
_PLAIN: Final = {
    "prototype": "results of our trial program, older than this simulator",
    "expected (prototype)": "expected from our trial program",
    "direction": "only the direction",
}


def source_text(source: str) -> str:
    """Return the text shown for a source, one of `BANDS` or `CERTAINTIES`."""
    return _PLAIN.get(source, source)


@dataclass(frozen=True)
class Paper:
    """Publication of the claims."""

    title: str
    authors: str
    venue: str
    year: int
    link: str


@dataclass(frozen=True)
class Arm:
    """A policy of the comparison.

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
    """A computed figure in place of an arm, from the scenario of an arm.

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
    """A compared number of an arm's summary, alone or against another arm.

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
        """Name made of metric and arms, e.g. ``queue_mean_s mip/sticky``."""
        sign = {"ratio": "/", "difference": "-", "value": ""}[self.kind]
        return f"{self.metric} {self.arm}{sign}{self.against}"

    @property
    def label(self) -> str:
        """The title, or the text if there is none."""
        return self.title or self.text

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms that the measure needs."""
        return (self.arm, self.against) if self.against else (self.arm,)


class ReplayPoint(NamedTuple):
    """A point on an axis; the base scenario without an axis."""

    axis: str = ""
    value: float = 0.0

    def __str__(self) -> str:
        return f"{self.axis}={self.value:g}" if self.axis else ""


BASE: Final = ReplayPoint()


@dataclass(frozen=True)
class Claim:
    """A measure at a point, with its published figure and the expected band.

    Parameters
    ----------
    measure : ReplayMeasure
        What is compared.
    at : ReplayPoint
        Where.
    published : float or None
        The published figure in the form of the measure; None = there is none.
    published_text : str
        The published figure in the paper's words, with its "up to".
    band : (float, float) or None
        Expected range of the simulated figure, high end possibly inf; None = for information only.
    certainty : str
        One of `CERTAINTIES`: source of the published figure.
    band_from : str
        One of `BANDS`; "" without a band.
    since : ReplayPoint or None
        Reference point: then the claim is about the change from there, as a ratio, or as a
        difference of differences.
    by_construction : bool
        Whether a setting of the replay was chosen to match the figure.
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
        """Why a verdict on the claim proves nothing and is not counted; "" = it counts.

        A band from our prototype, or an unpublished direction, was chosen after the results.
        """
        if self.by_construction:
            return BY_CONSTRUCTION
        unpublished = self.band_from == "direction" and not self.published_text
        return AFTER_RESULTS if self.band_from == "prototype" or unpublished else ""

    @property
    def text(self) -> str:
        """Unique name of the claim, e.g. ``queue_mean_s mip/sticky at per_h=10``."""
        if self.since is not None:
            return f"{self.measure.text} from {self.since} to {self.at}"
        return f"{self.measure.text} at {self.at}" if self.at.axis else self.measure.text

    @property
    def points(self) -> tuple[ReplayPoint, ...]:
        """Points that the claim needs."""
        return (self.at,) if self.since is None else (self.at, self.since)

    @property
    def figure(self) -> ReplayMeasure:
        """The measure in the form of the figure; the change of a value is a ratio."""
        return (
            replace(self.measure, kind="ratio")
            if self.since is not None and self.measure.kind == "value"
            else self.measure
        )


@dataclass(frozen=True)
class ReplayAxis:
    """A varied quantity, over which each measure becomes a curve.

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
        """The label with the fixed conditions of the axis."""
        return f"{self.label}, {self.where}" if self.where else self.label

    def spot(self, *values: float) -> str:
        """Return axis values with unit and fixed conditions: "at 12 jobs/h", "from 4 to 8 s"."""
        ends = " to ".join(f"{value:g}" for value in values)
        noun = self.unit or (
            self.title.lower().removesuffix("s") if values[-1] == 1 else self.title.lower()
        )
        of = f" ({self.title.lower()})" if self.unit in ("s", "h") else ""
        return f"{'at' if len(values) == 1 else 'from'} {ends} {noun}{of}" + (
            f", {self.where}" if self.where else ""
        )

    def place(self, value: float) -> str:
        """Return a value with its unit and the fixed conditions."""
        return f"{self.title} {value:g} {self.unit}".rstrip() + (
            f", {self.where}" if self.where else ""
        )


@dataclass(frozen=True)
class CardFigure:
    """A figure on a card: one measure, at one point or at several.

    Parameters
    ----------
    title : str
        What the user reads.
    replay : str
        Name of the replay that measures it.
    claims : tuple of str
        `Claim.text` of each point.
    kind : {"ratio", "difference"}
        As in its claims; a difference is one of shares.
    finding : str
        Text in place of the verdict; "" = the verdict of the claims.
    """

    title: str
    replay: str
    claims: tuple[str, ...]
    kind: Kind = "ratio"
    finding: str = ""


@dataclass(frozen=True)
class ReplayCard:
    """A replay on one card of the first page, and the comparison that a click opens.

    Parameters
    ----------
    replay, title : str
        Name of the replay, and heading.
    note : str
        Its assumptions, in one line.
    policies : tuple of (str, str)
        Name of each compared arm and its title, the baseline first.
    figures : tuple of CardFigure
        Published and simulated figures.
    acting : frozenset of str
        Policies of all arms of the replay, which can run on its jobs.
    at : ReplayPoint
        Where the policies are compared.
    """

    replay: str
    title: str
    note: str
    policies: tuple[tuple[str, str], ...]
    figures: tuple[CardFigure, ...]
    acting: frozenset[str]
    at: ReplayPoint = BASE


@dataclass(frozen=True)
class Replay:
    """A published comparison, ready to run.

    Parameters
    ----------
    name, title : str
        Key and heading.
    paper : Paper
        Where it was published.
    claim, known, reading, explain, budget : str
        What is published; what is known of the paper; what is our reading; what to notice (with
        numbers of the run in braces, see `trainyard.labs.replays.explanation`); how much is run,
        and why so much.
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
    card : ReplayCard or None
        Its card on Start.
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
    card: ReplayCard | None = None

    def arm(self, name: str) -> Arm:
        """Return the arm or bound with this name."""
        return next(arm for arm in (*self.arms, *self.bounds) if arm.name == name)

    def find_bound(self, name: str) -> Bound | None:
        """Return the bound with this name; None for arms."""
        return next((bound for bound in self.bounds if bound.name == name), None)

    def is_line(self, measure: ReplayMeasure) -> bool:
        """Return True if a measure is about a bound, which is drawn as a line."""
        return self.find_bound(measure.arm) is not None

    def axis(self, name: str) -> ReplayAxis:
        """Return the axis with this name."""
        return next(axis for axis in self.axes if axis.name == name)

    def label(self, claim: Claim) -> str:
        """Return the label of a claim: its measure and, off the base scenario, its axis values."""
        if not claim.at.axis:
            return claim.measure.label
        axis = self.axis(claim.at.axis)
        return (
            f"{claim.measure.label},"
            f" {axis.spot(*(point.value for point in reversed(claim.points)))}"
        )

    def scenario(self, arm: str, at: ReplayPoint = BASE, seed: int = 0) -> Scenario:
        """Return the scenario of an arm, or of a bound, at a point with a seed.

        Raises
        ------
        ParameterError
            If a change has an unknown path or an invalid value.

        Notes
        -----
        Changes of the arm apply first, then those of the axis, then the seed, of the scenario and
        of generated jobs. So all arms get the same jobs in the same run.
        """
        changes = list(self.arm(arm).set)
        if at.axis:
            axis = self.axis(at.axis)
            changes += axis.fixed
            changes += axis.sets[axis.values.index(at.value)] if arm in axis.only else ()
        return with_seed(Scenario.from_json(with_settings(self.base.to_json(), changes)), seed)

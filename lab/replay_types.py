"""What a replay of a paper is made of: the paper, arms, measures, claims and axes, and the scenario of each arm at each point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from lab.scenario import MADE, Scenario
from lab.settings import with_settings
from sim.generate import workload

Kind = Literal["ratio", "difference", "value"]

KINDS: Final = ("ratio", "difference", "value")
CERTAINTIES: Final = ("read", "our reading", "expected (prototype)")


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
class Measure:
    """What is compared: a number of the summary of an arm, alone or against that of another arm.

    Parameters
    ----------
    metric : str
        One of `sim.metrics.summary.NUMBERS`.
    arm, against : str
        Names of arms; `against` is "" for a plain value.
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


class Point(NamedTuple):
    """A place on an axis; without an axis the base scenario."""

    axis: str = ""
    value: float = 0.0

    def __str__(self) -> str:
        return f"{self.axis}={self.value:g}" if self.axis else ""


BASE: Final = Point()


@dataclass(frozen=True)
class Claim:
    """A measure at a point, with what was published of it and where the simulated figure should lie.

    Parameters
    ----------
    measure : Measure
        What is compared.
    at : Point
        Where.
    published : float or None
        The published figure in the form of the measure; None = there is none.
    published_text : str
        The same in words, with its "up to".
    band : (float, float) or None
        Where the simulated figure is expected; None = it is shown for information.
    certainty : str
        One of `CERTAINTIES`: how well the claim is known.
    """

    measure: Measure
    at: Point
    published: float | None
    published_text: str
    band: tuple[float, float] | None
    certainty: str

    @property
    def text(self) -> str:
        """A name that tells all claims of a replay apart, e.g. ``queue_mean_s mip/sticky at per_h=10``."""
        return f"{self.measure.text} at {self.at}" if self.at.axis else self.measure.text

    @property
    def label(self) -> str:
        """What the user reads."""
        return f"{self.measure.label}, {self.at}" if self.at.axis else self.measure.label


@dataclass(frozen=True)
class Axis:
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
        The arms to which `sets` apply; for the others it makes no difference.
    claimed : tuple of float
        The values for which something was published, or is expected.
    measures : tuple of Measure
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
    measures: tuple[Measure, ...]
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

    def place(self, value: float) -> str:
        """Return a value with its unit, and what is fixed along the axis."""
        return f"{self.title} {value:g} {self.unit}".rstrip() + (f", {self.where}" if self.where else "")


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
        What is published; what is known of the paper; what is our reading; what to notice; how much is run, and why so much.
    base : Scenario
        What all arms share.
    arms, axes, claims : tuple
        What is compared, varied and claimed.
    seeds : int
        Runs per arm for the claims, with seeds 0, 1, ...
    run_s : float, seconds
        Processor time of a run, on average, as measured when the replay was written: what a front end says before it runs; 0 = not known.
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
    axes: tuple[Axis, ...]
    claims: tuple[Claim, ...]
    seeds: int
    run_s: float = 0.0

    def arm(self, name: str) -> Arm:
        """Return an arm by its name."""
        return next(arm for arm in self.arms if arm.name == name)

    def axis(self, name: str) -> Axis:
        """Return an axis by its name."""
        return next(axis for axis in self.axes if axis.name == name)

    def scenario(self, arm: str, at: Point = BASE, seed: int = 0) -> Scenario:
        """Return what is run for an arm at a point with a seed.

        Raises
        ------
        ParameterError
            If the changes lead nowhere, or a value cannot be used.

        Notes
        -----
        First the changes of the arm, then those of the axis, then the seed: of the scenario, and of the jobs if they are made. So all arms meet the same
        jobs in the same run.
        """
        changes = list(self.arm(arm).set)
        if at.axis:
            axis = self.axis(at.axis)
            changes += axis.fixed
            changes += axis.sets[axis.values.index(at.value)] if arm in axis.only else ()
        return seeded(Scenario.from_json(with_settings(self.base.to_json(), changes)), seed)


def seeded(scenario: Scenario, seed: int) -> Scenario:
    """Return a scenario with another seed, of its jobs too if they are made with one."""
    source = scenario.trace.source
    made = source.startswith(MADE) and hasattr(workload(source.removeprefix(MADE)), "seed")
    jobs = [f"trace.source.seed={seed}"] if made else []
    return Scenario.from_json(with_settings(scenario.to_json(), [f"seed={seed}", *jobs]))

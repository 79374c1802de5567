"""Jobs drawn from figures that `jobtraces.generate.fit` took from a trace: no name, id or date of
the trace is among them, so they can be passed on without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.generate.elastic import HOUR_S, MOST_JOBS, MOST_SEED, pick, streams
from jobtraces.generate.limits import PARTS, Fitted, drawn
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import param
from sim.trace import Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BINS: Final = 40
"""Equal parts into which the run times of one group of sizes are cut at most; further points halve
the last part again and again, because the few longest jobs hold most of the GPU time."""
WEEK_H: Final = 168
SOON_S: Final = 60.0
"""A job that comes so soon after another one belongs to a burst."""
_TAIL: Final = 0.9
_INNER: Final = 50
"""Ranks of a part at which its mean is measured."""
_MONDAY: Final = pd.Timestamp("2001-01-01")
"""Generated calendars begin in the week of this day, whenever the trace was recorded."""


def rank_edges(points: int) -> Floats:
    """Return the ranks, 0 to 1, between which the run times of a group are averaged: `points`
    parts.
    """
    equal = min(points, BINS)
    edges = np.linspace(0, 1, equal + 1)
    halves = 1 - 0.5 ** np.arange(1, points - equal + 1) / equal
    return np.concatenate((edges[:-1], halves, [1.0]))


@dataclass(frozen=True)
class Like:
    """Jobs like those of a trace, drawn from fitted figures: sizes, run times by size, arrivals by
    hour, users.

    See `jobtraces.generate.fit.figures`, which makes the parameters.
    """

    title: ClassVar[str] = "Like a trace of yours"

    jobs: int = param(1000, low=2, high=MOST_JOBS, help="Number of jobs at load 1.")
    days: float = param(
        7.0,
        title="Time span",
        unit="days",
        low=0,
        high=25_000,
        help="Time from first to last submission.",
    )
    load: float = param(
        1.0,
        title="Load ×",
        low=0.001,
        high=1000,
        help="How many times the jobs in the same time: 2 = twice as many.",
    )
    cluster: str = param(
        "8x8:v100",
        help="Machines that the jobs come with, e.g. 40x8:p100, with + between groups.",
    )
    begins: float = param(
        0.0,
        title="First hour",
        unit="h",
        low=0,
        high=WEEK_H,
        help="Hour of the week of the first submission; 0 = Monday, 00:00.",
    )
    calendar: bool = param(
        False,
        title="Calendar known",
        help="Whether the hours of day and week are known, so that instants are dates.",
    )
    hours: tuple[float, ...] = param(
        (),
        title="Hours of the day",
        low=-10,
        high=10,
        help="24 scores: how much busier than others each hour of the day is; empty = all alike.",
    )
    weekdays: tuple[float, ...] = param(
        (),
        title="Days of the week",
        low=-10,
        high=10,
        help="7 scores, Monday first: how much busier each day is; empty = all alike.",
    )
    noise: float = param(
        1.0,
        title="Spread of hours",
        low=0,
        high=10,
        help="Standard deviation of the score of an hour around that of its hour and day.",
    )
    persistence: float = param(
        0.0,
        title="Persistence of busy hours",
        low=-0.99,
        high=0.99,
        help="Correlation of that deviation with the one an hour before.",
    )
    rates: tuple[float, ...] = param(
        (1.0,),
        title="Hourly rates",
        low=0,
        high=1e9,
        help="Jobs per hour of each class of hours, from quiet to busy; scaled to the jobs.",
    )
    rate_shares: tuple[float, ...] = param(
        (1.0,),
        title="Shares of hours",
        low=0,
        high=1e9,
        help="How many hours have each of those rates.",
    )
    last: float = param(
        0.0,
        title="Jobs of the last hour",
        low=0,
        high=1e9,
        help="Jobs in what is left of the last hour, beside those rates; 0 = as the others.",
    )
    together: float = param(
        0.0,
        title="Submitted together",
        low=0,
        high=1,
        help="Share of jobs that come within a minute of the job before them.",
    )
    gaps: tuple[float, ...] = param(
        (0.0,),
        title="Gaps of those",
        unit="s",
        low=0,
        high=SOON_S,
        help="Mean time since the job before, of equal parts of those jobs.",
    )
    users: tuple[float, ...] = param(
        (),
        title="Shares of users",
        low=0,
        high=1e9,
        help="How many jobs each of the busier users has.",
    )
    user_sizes: tuple[float, ...] = param(
        (),
        title="Sizes by user",
        low=-10,
        high=10,
        help="Score of each of those users: how large their jobs are.",
    )
    user_times: tuple[float, ...] = param(
        (),
        title="Run times by user",
        low=-10,
        high=10,
        help="Score of each of those users: how long their jobs run for their size.",
    )
    user_spread: tuple[float, ...] = param(
        (1.0, 1.0),
        title="Spread of one user",
        low=0,
        high=10,
        help="Standard deviation of the scores of size and of run time among jobs of one user.",
    )
    others: int = param(
        0, title="Other users", low=0, high=MOST_JOBS, help="Number of users with few jobs."
    )
    others_share: float = param(
        0.0, title="Share of the others", low=0, high=1e9, help="How many jobs they have together."
    )
    streak: float = param(
        0.0,
        title="Runs of one user",
        low=0,
        high=1,
        help="Probability that a job follows one of the same user, beyond chance.",
    )
    alike: tuple[float, ...] = param(
        (0.0, 0.0),
        title="Alike",
        low=-0.99,
        high=0.99,
        help="Correlation of size and of run time with the job before of the same user.",
    )
    sizes: tuple[float, ...] = param(
        (1.0, 2.0, 4.0, 8.0), title="Sizes", unit="GPUs", low=0, high=1e6, help="Sizes of jobs."
    )
    size_shares: tuple[float, ...] = param(
        (70.0, 10.0, 10.0, 10.0),
        title="Shares of sizes",
        low=0,
        high=1e9,
        help="How many jobs have each of those sizes.",
    )
    groups: tuple[float, ...] = param(
        (1.0, 8.0),
        title="Groups of sizes",
        unit="GPUs",
        low=0,
        high=1e6,
        help="Largest size of each group that has run times of its own.",
    )
    points: tuple[float, ...] = param(
        (5.0, 5.0),
        title="Run times of each group",
        low=1,
        high=BINS + 20,
        help="Number of run times that describe each group.",
    )
    times: tuple[float, ...] = param(
        (60.0, 600.0, 1800.0, 7200.0, 36000.0, 120.0, 1800.0, 7200.0, 28800.0, 144000.0),
        title="Run times",
        unit="s",
        low=0.001,
        high=1e9,
        help="Mean run time of equal parts of each group, from short to long, group by group.",
    )
    types: str = param("", title="GPU types", help="Names with + between them; empty = none.")
    type_shares: tuple[float, ...] = param(
        (),
        title="Shares of types",
        low=0,
        high=1e9,
        help="How many jobs of each group name each type, group by group.",
    )
    models: str = param("", title="Models", help="Names with + between them; empty = none.")
    model_shares: tuple[float, ...] = param(
        (),
        title="Shares of models",
        low=0,
        high=1e9,
        help="How many jobs of each group train each model, group by group.",
    )
    batches: tuple[float, ...] = param(
        (),
        title="Batch sizes",
        low=0,
        high=1e9,
        help="Batch size of each model; 0 = not known.",
    )
    limits: tuple[float, ...] = param(
        (),
        title="Time limits",
        unit="s",
        low=0,
        high=1e9,
        help="Limits in ascending order, the last may be 0 = without one; empty = none is known.",
    )
    limit_shares: tuple[float, ...] = param(
        (),
        title="Shares of limits",
        low=0,
        high=1e9,
        help="How many jobs of each fifth by run time have each limit, from the shortest.",
    )
    outcomes: str = param("", title="Outcomes", help="Words with + between them; empty = none.")
    outcome_shares: tuple[float, ...] = param(
        (),
        title="Shares of outcomes",
        low=0,
        high=1e9,
        help="How many jobs of each fifth by run time have each outcome, from the shortest.",
    )
    homes: tuple[float, ...] = param(
        (),
        title="Virtual clusters of users",
        low=-1,
        high=1e6,
        help="Number of the virtual cluster in which each busy user is mostly; -1 = in none.",
    )
    home_shares: tuple[float, ...] = param(
        (),
        title="Shares of virtual clusters",
        low=0,
        high=1e9,
        help="How many jobs elsewhere, and of other users, are in each; empty = none is known.",
    )
    at_home: float = param(
        0.0,
        title="At home",
        low=0,
        high=1,
        help="Share of jobs of the busy users in the virtual cluster where they are mostly.",
    )
    seed: int = param(0, low=0, high=MOST_SEED, help="Seed of everything random.")

    FREE: ClassVar[tuple[str, ...]] = ("load", "seed", "cluster")
    """Parameters that a user chooses; all others are figures of the trace."""

    def __post_init__(self) -> None:
        """Refuse figures that contradict each other."""
        object.__setattr__(self, "cluster", self.cluster.replace(",", "+"))
        self.machines()
        groups = len(self.groups)
        lengths = {
            "hours": (len(self.hours), (0, 24)),
            "weekdays": (len(self.weekdays), (0, 7)),
            "rate_shares": (len(self.rate_shares), (len(self.rates),)),
            "user_sizes": (len(self.user_sizes), (len(self.users),)),
            "user_times": (len(self.user_times), (len(self.users),)),
            "user_spread": (len(self.user_spread), (2,)),
            "alike": (len(self.alike), (2,)),
            "size_shares": (len(self.size_shares), (len(self.sizes),)),
            "points": (len(self.points), (groups,)),
            "times": (len(self.times), (int(sum(self.points)),)),
            "type_shares": (len(self.type_shares), (groups * len(_names(self.types)),)),
            "model_shares": (len(self.model_shares), (groups * len(_names(self.models)),)),
            "batches": (len(self.batches), (len(_names(self.models)),)),
            "limit_shares": (len(self.limit_shares), (PARTS * len(self.limits),)),
            "outcome_shares": (len(self.outcome_shares), (PARTS * len(_names(self.outcomes)),)),
            "homes": (len(self.homes), (0, len(self.users))),
        }
        for name, (found, wanted) in lengths.items():
            if found not in wanted:
                raise ParameterError(
                    f"like: {name} must be {' or '.join(map(str, wanted))} numbers, and are"
                    f" {found}. Fit the trace again."
                )
        if any(list(values) != sorted(set(values)) for values in (self.sizes, self.groups)):
            raise ParameterError("like: sizes and groups must ascend. Fit the trace again.")
        self._check_limits()
        if not self.sizes or not self.rates or not self.gaps:
            raise ParameterError("like: sizes, rates and gaps must hold at least one number each.")
        if self.sizes[-1] > (self.groups or (-1.0,))[-1]:
            raise ParameterError(
                f"like: no group holds jobs of {self.sizes[-1]:g} GPUs. Raise the last of groups."
            )
        if not all(value == int(value) for value in (*self.sizes, *self.points)):
            raise ParameterError("like: sizes and points must be whole numbers.")
        if not sum(self.size_shares) or not sum(
            rate * share for rate, share in zip(self.rates, self.rate_shares, strict=True)
        ):
            raise ParameterError("like: size_shares and rates must not all be 0.")
        if self.total > MOST_JOBS:
            raise ParameterError(
                f"like: {self.jobs:,} jobs at load {self.load:g} are more than {MOST_JOBS:,} jobs."
                " Choose a smaller load, or fit a part of the trace."
            )

    def _check_limits(self) -> None:
        known = [limit or math.inf for limit in self.limits]
        if known != sorted(set(known)) or (self.limits and not sum(self.limit_shares)):
            raise ParameterError(
                "like: limits must ascend, 0 = without one being the last, and some job must have"
                " one of them."
            )
        if self.homes and max(self.homes) >= len(self.home_shares):
            raise ParameterError("like: homes must be places among home_shares.")
        if self.home_shares and not sum(self.home_shares):
            raise ParameterError("like: home_shares must not all be 0.")

    @property
    def total(self) -> int:
        """Number of jobs that are made."""
        return max(2, round(self.jobs * self.load))

    def machines(self) -> Cluster:
        """Return the cluster that the jobs come with."""
        return Cluster.parse(self.cluster.replace("+", ","))

    def make(self) -> Trace:
        """Return the jobs; the same parameters give the same jobs.

        Notes
        -----
        Every hour has a score: that of its hour of the day and day of the week, plus noise that
        follows that of the hour before. The hours in the order of their scores get the rates in
        ascending order, so the counts of all hours keep their distribution, and bursts keep their
        sizes. Sizes and run times are drawn alike: the jobs in the order of a score (of the user,
        plus noise that follows that of the user's job before) get the sizes in ascending order, and
        the jobs of each group of sizes in the order of another score the run times of that group.
        """
        jobs = self.total
        when, within, who, what, long, kind, more = streams(self.seed, 7)
        submit = self._submissions(when, within, jobs)
        user = self._users(who, jobs)
        size_score, time_score = (
            self._user_scores(of, rng)[user] + spread * _following(user, alike, rng)
            for of, spread, alike, rng in zip(
                (self.user_sizes, self.user_times),
                self.user_spread,
                self.alike,
                (what, long),
                strict=True,
            )
        )
        gpus = np.array(self.sizes)[pick(np.array(self.size_shares), _even_ranks(size_score, what))]
        group = np.searchsorted(np.array(self.groups), gpus)
        columns: dict[str, object] = {
            "job_id": pd.RangeIndex(1, jobs + 1).astype("str"),
            "submit_time_s": submit,
            "num_gpus": gpus,
            "duration_s": (run_s := self._run_times(group, time_score, long)),
            **drawn(self._fitted(), run_s, user, more),
        }
        if self.users or self.others:
            # Named in the order of the first job, as everywhere.
            order, _ = pd.factorize(user)
            columns["user"] = [f"user {at + 1}" for at in order.tolist()]
        for column, names, shares in (
            ("gpu_type", _names(self.types), self.type_shares),
            ("model", _names(self.models), self.model_shares),
        ):
            if names:
                at = _of_groups(np.array(shares).reshape(-1, len(names)), group, kind)
                columns[column] = np.array([*names, ""], object)[at]
                if column == "model" and any(self.batches):
                    known = np.array([*self.batches, 0.0])[at]
                    columns["batch_size"] = np.where(known > 0, known, np.nan)
        epoch = (_MONDAY + pd.Timedelta(self.begins, "h")).isoformat() if self.calendar else ""
        name = f"Made: like a trace, load {self.load:g}, seed {self.seed}"
        return Trace.of(pd.DataFrame(columns), name=name, epoch=epoch)

    def _fitted(self) -> Fitted:
        return Fitted(**{one.name: getattr(self, one.name) for one in fields(Fitted)})

    def _submissions(
        self, when: np.random.Generator, within: np.random.Generator, jobs: int
    ) -> Floats:
        """Return the submissions of all jobs in ascending order, whole seconds."""
        span_s = self.days * 24 * HOUR_S
        hours, rest = int(span_s // HOUR_S), span_s % HOUR_S
        clock = (int(self.begins) + np.arange(hours)) % WEEK_H
        score = _following(np.zeros(hours, np.int64), self.persistence, when) * self.noise
        if self.hours:
            score += np.array(self.hours)[clock % 24]
        if self.weekdays:
            score += np.array(self.weekdays)[clock // 24]
        even = (np.arange(hours) + 0.5) / max(hours, 1)
        rate = np.empty(hours + 1)
        rate[np.argsort(score, kind="stable")] = np.array(self.rates)[
            pick(np.array(self.rate_shares), even)
        ]
        if not rate[:hours].any():
            rate[:hours] = 1.0
        rate[hours] = self.last or (rate[:hours].mean() * rest / HOUR_S if hours else 1.0)
        if hours and not rate[0]:  # the first job is where the span begins
            busy = np.flatnonzero(rate[:hours])
            quiet = int(busy[np.argmin(rate[busy])])
            rate[[0, quiet]] = rate[[quiet, 0]]
        upto = np.rint(np.cumsum(rate) / rate.sum() * jobs).astype(np.int64)
        hour = np.repeat(np.arange(hours + 1), np.diff(upto, prepend=0))
        width = np.where(hour == hours, rest, HOUR_S)
        times = np.sort(hour * HOUR_S + within.random(jobs) * width)
        times[[0, -1]] = 0.0, span_s
        # Who comes first in an hour stays there, else sparse hours would become one burst.
        first = np.diff(hour, prepend=-1) > 0
        first[-1] = True
        follow = min(self.together * jobs / max(jobs - int(np.count_nonzero(first)), 1), 1.0)
        leads = first | (within.random(jobs) >= follow)
        gap = np.array(self.gaps)[(within.random(jobs) * len(self.gaps)).astype(np.int64)]
        since = np.cumsum(np.where(leads, 0.0, np.floor(gap + within.random(jobs))))
        leader = np.maximum.accumulate(np.where(leads, np.arange(jobs), 0))
        ends = np.minimum((hour + 1) * HOUR_S - 1, span_s)
        ends[-1] = span_s
        return np.sort(np.minimum(np.floor(times[leader]) + since - since[leader], ends))

    def _users(self, rng: np.random.Generator, jobs: int) -> Ints:
        """Return the user of each job in order of submission: runs of one user, whose shares are
        met as nearly as whole runs can.
        """
        if not self.users and not self.others:
            return np.zeros(jobs, np.int64)
        shares = np.array(
            [*self.users, *[self.others_share / max(self.others, 1)] * self.others], np.float64
        )
        if not shares.sum():
            shares += 1
        begins = rng.random(jobs) >= self.streak
        begins[0] = True
        runs = np.count_nonzero(begins)
        drawn = pick(shares, (rng.permutation(runs) + rng.random(runs)) / runs)
        return np.asarray(drawn[np.cumsum(begins) - 1], np.int64)

    def _user_scores(self, known: tuple[float, ...], rng: np.random.Generator) -> Floats:
        """Return a score for every user; those of the others spread as those that are known."""
        spread = float(np.std(known)) if known else 0.0
        return np.concatenate((np.array(known), spread * rng.standard_normal(self.others), [0.0]))

    def _run_times(
        self, group: NDArray[np.intp], score: Floats, rng: np.random.Generator
    ) -> Floats:
        made = np.empty(len(group))
        ends = np.cumsum(np.array(self.points, np.int64))
        for at, points in enumerate(map(int, self.points)):
            mine = np.flatnonzero(group == at)
            means = np.array(self.times[ends[at] - points : ends[at]])
            made[mine] = _from_means(means, _even_ranks(score[mine], rng))
        return np.maximum(np.rint(made), 1.0)


def _names(text: str) -> list[str]:
    return text.split("+") if text else []


def _from_means(means: Floats, rank: Floats) -> Floats:
    """Return the values at these ranks: straight lines on a logarithmic axis through the means at
    the middles of their parts, which go on at both ends. The longest tenth is then scaled part by
    part, so that its parts, which hold most of the time, keep their means.
    """
    if len(means) == 1:
        return np.full(len(rank), means[0])
    edges = rank_edges(len(means))
    middles, log = (edges[:-1] + edges[1:]) / 2, np.log(means)
    first = (log[1] - log[0]) / (middles[1] - middles[0])
    last = (log[-1] - log[-2]) / (middles[-1] - middles[-2])
    at = np.concatenate(([0.0], middles, [1.0]))
    value = np.concatenate(
        ([log[0] - first * middles[0]], log, [log[-1] + last * (1 - middles[-1])])
    )
    even = (np.arange(_INNER) + 0.5) / _INNER
    inner = edges[:-1, None] + np.diff(edges)[:, None] * even
    scale = means / np.exp(np.interp(inner, at, value)).mean(axis=1)
    scale[edges[:-1] < _TAIL] = 1.0
    part = np.clip(np.searchsorted(edges, rank, side="right") - 1, 0, len(means) - 1)
    return np.asarray(np.exp(np.interp(rank, at, value)) * scale[part], np.float64)


def _even_ranks(score: Floats, rng: np.random.Generator) -> Floats:
    """Return numbers in the order of the scores that cover 0 to 1 evenly."""
    rank = np.empty(len(score))
    rank[np.argsort(score, kind="stable")] = np.arange(len(score))
    return np.asarray((rank + rng.random(len(score))) / max(len(score), 1), np.float64)


def _following(of: Ints, alike: float, rng: np.random.Generator) -> Floats:
    """Return standard normal numbers, each correlated with the one before of the same number in
    `of`.
    """
    made = rng.standard_normal(len(of))
    if not alike:
        return made
    fresh, last = math.sqrt(1 - alike**2), dict[int, float]()
    drawn = made.tolist()
    for at, one in enumerate(of.tolist()):
        value = drawn[at]
        if one in last:
            value = alike * last[one] + fresh * value
        last[one] = drawn[at] = value
    return np.array(drawn)


def _of_groups(shares: Floats, group: NDArray[np.intp], rng: np.random.Generator) -> Ints:
    """Return a choice for each job by the shares of its group; one more than there are = none."""
    made = np.full(len(group), shares.shape[1], np.int64)
    uniform = rng.random(len(group))
    for at, row in enumerate(shares):
        mine = group == at
        if row.sum():
            made[mine] = pick(row, uniform[mine])
    return made

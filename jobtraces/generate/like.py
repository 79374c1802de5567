"""Draw jobs from the figures of a trace (`jobtraces.generate.fit`).

The figures contain no name, id or date of the trace, so they can be shared without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.generate.elastic import HOUR_S, MAX_JOBS, MAX_SEED, pick_by_share, random_streams
from jobtraces.generate.limits import RUN_TIME_PARTS, FittedLimits, draw_columns
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import param
from sim.trace import Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_EQUAL_PARTS: Final = 40
"""Largest number of equal parts of the run times of a size group. Further points halve the last
part repeatedly, because the few longest jobs hold most of the GPU time."""
WEEK_H: Final = 168
MAX_BURST_GAP_S: Final = 60.0
"""Largest gap between two jobs of a burst."""
_TAIL_RANK: Final = 0.9
_RANKS_PER_PART: Final = 50
"""Number of ranks used to compute the mean of a part."""
_MONDAY: Final = pd.Timestamp("2001-01-01")
"""Generated calendars start in the week of this day, not at the date of the trace."""


def rank_edges(points: int) -> Floats:
    """Return the rank boundaries, 0 to 1, of the parts into which run times are averaged.

    Up to `MAX_EQUAL_PARTS` equal parts; each further part halves the last one.
    """
    equal = min(points, MAX_EQUAL_PARTS)
    edges = np.linspace(0, 1, equal + 1)
    halves = 1 - 0.5 ** np.arange(1, points - equal + 1) / equal
    return np.concatenate((edges[:-1], halves, [1.0]))


@dataclass(frozen=True)
class Like:
    """Jobs similar to a trace: sizes, run times by size, hourly arrivals and users.

    `jobtraces.generate.fit.figures` computes the parameters.
    """

    title: ClassVar[str] = "Like a trace of yours"

    jobs: int = param(1000, low=2, high=MAX_JOBS, help="Number of jobs at load 1.")
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
        title="Load multiplier",
        low=0.001,
        high=1000,
        help="Factor on the number of jobs in the same time: 2 = twice as many.",
    )
    cluster: str = param(
        "8x8:v100",
        help="Cluster of the workload, e.g. 40x8:p100, with + between groups.",
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
        help="24 scores: how busy each hour of the day is; empty = equally busy.",
    )
    weekdays: tuple[float, ...] = param(
        (),
        title="Days of the week",
        low=-10,
        high=10,
        help="7 scores, Monday first: how busy each day is; empty = equally busy.",
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
        help="Correlation of that deviation with the deviation one hour earlier.",
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
        help="Number of hours with each rate.",
    )
    last: float = param(
        0.0,
        title="Jobs of the last hour",
        low=0,
        high=1e9,
        help="Jobs in the last, incomplete hour; 0 = at the mean rate.",
    )
    together: float = param(
        0.0,
        title="Submitted together",
        low=0,
        high=1,
        help="Share of jobs submitted within a minute of the previous job.",
    )
    gaps: tuple[float, ...] = param(
        (0.0,),
        title="Gaps in bursts",
        unit="s",
        low=0,
        high=MAX_BURST_GAP_S,
        help="Mean time since the previous job, for equal parts of these jobs.",
    )
    users: tuple[float, ...] = param(
        (),
        title="Shares of users",
        low=0,
        high=1e9,
        help="Number of jobs of each busy user.",
    )
    user_sizes: tuple[float, ...] = param(
        (),
        title="Sizes by user",
        low=-10,
        high=10,
        help="Score of each busy user: how large the jobs are.",
    )
    user_times: tuple[float, ...] = param(
        (),
        title="Run times by user",
        low=-10,
        high=10,
        help="Score of each busy user: how long jobs run for their size.",
    )
    user_spread: tuple[float, ...] = param(
        (1.0, 1.0),
        title="Spread of one user",
        low=0,
        high=10,
        help="Standard deviation of the scores of size and of run time among jobs of one user.",
    )
    others: int = param(
        0, title="Other users", low=0, high=MAX_JOBS, help="Number of users with few jobs."
    )
    others_share: float = param(
        0.0,
        title="Share of the others",
        low=0,
        high=1e9,
        help="Total number of jobs of the other users.",
    )
    streak: float = param(
        0.0,
        title="Runs of one user",
        low=0,
        high=1,
        help="Probability that a job follows a job of the same user, beyond chance.",
    )
    alike: tuple[float, ...] = param(
        (0.0, 0.0),
        title="Similarity",
        low=-0.99,
        high=0.99,
        help="Correlation of size and of run time with the user's previous job.",
    )
    sizes: tuple[float, ...] = param(
        (1.0, 2.0, 4.0, 8.0), title="Sizes", unit="GPUs", low=0, high=1e6, help="Sizes of jobs."
    )
    size_shares: tuple[float, ...] = param(
        (70.0, 10.0, 10.0, 10.0),
        title="Shares of sizes",
        low=0,
        high=1e9,
        help="Number of jobs with each size.",
    )
    groups: tuple[float, ...] = param(
        (1.0, 8.0),
        title="Groups of sizes",
        unit="GPUs",
        low=0,
        high=1e6,
        help="Largest size of each group with separate run times.",
    )
    points: tuple[float, ...] = param(
        (5.0, 5.0),
        title="Run times of each group",
        low=1,
        high=MAX_EQUAL_PARTS + 20,
        help="Number of run times per group.",
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
        help="Number of jobs with each type, group by group.",
    )
    models: str = param("", title="Models", help="Names with + between them; empty = none.")
    model_shares: tuple[float, ...] = param(
        (),
        title="Shares of models",
        low=0,
        high=1e9,
        help="Number of jobs with each model, group by group.",
    )
    batches: tuple[float, ...] = param(
        (),
        title="Batch sizes",
        low=0,
        high=1e9,
        help="Batch size of each model; 0 = unknown.",
    )
    limits: tuple[float, ...] = param(
        (),
        title="Time limits",
        unit="s",
        low=0,
        high=1e9,
        help="Limits in ascending order; the last may be 0 = no limit; empty = unknown.",
    )
    limit_shares: tuple[float, ...] = param(
        (),
        title="Shares of limits",
        low=0,
        high=1e9,
        help="Number of jobs with each limit, per fifth of the jobs by run time.",
    )
    outcomes: str = param("", title="Outcomes", help="Words with + between them; empty = none.")
    outcome_shares: tuple[float, ...] = param(
        (),
        title="Shares of outcomes",
        low=0,
        high=1e9,
        help="Number of jobs with each outcome, per fifth of the jobs by run time.",
    )
    homes: tuple[float, ...] = param(
        (),
        title="Virtual clusters of users",
        low=-1,
        high=1e6,
        help="Index of the main virtual cluster of each busy user; -1 = none.",
    )
    home_shares: tuple[float, ...] = param(
        (),
        title="Shares of virtual clusters",
        low=0,
        high=1e9,
        help="Other jobs in each virtual cluster; empty = unknown.",
    )
    at_home: float = param(
        0.0,
        title="Share in the main cluster",
        low=0,
        high=1,
        help="Share of the busy users' jobs in their main virtual cluster.",
    )
    seed: int = param(0, low=0, high=MAX_SEED, help="Seed of everything random.")

    FREE: ClassVar[tuple[str, ...]] = ("load", "seed", "cluster")
    """Parameters that a user chooses; the other parameters are figures of the trace."""

    def __post_init__(self) -> None:
        """Raise an error for parameters that contradict each other."""
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
            "type_shares": (len(self.type_shares), (groups * len(_split_names(self.types)),)),
            "model_shares": (len(self.model_shares), (groups * len(_split_names(self.models)),)),
            "batches": (len(self.batches), (len(_split_names(self.models)),)),
            "limit_shares": (len(self.limit_shares), (RUN_TIME_PARTS * len(self.limits),)),
            "outcome_shares": (
                len(self.outcome_shares),
                (RUN_TIME_PARTS * len(_split_names(self.outcomes)),),
            ),
            "homes": (len(self.homes), (0, len(self.users))),
        }
        for name, (count, allowed) in lengths.items():
            if count not in allowed:
                raise ParameterError(
                    f"like: {name} must have {' or '.join(map(str, allowed))} numbers, but has"
                    f" {count}. Fit the trace again."
                )
        if any(list(values) != sorted(set(values)) for values in (self.sizes, self.groups)):
            raise ParameterError(
                "like: sizes and groups must be in ascending order. Fit the trace again."
            )
        self._check_limits()
        if not self.sizes or not self.rates or not self.gaps:
            raise ParameterError("like: sizes, rates and gaps must hold at least one number each.")
        if self.sizes[-1] > (self.groups or (-1.0,))[-1]:
            raise ParameterError(
                f"like: no group has jobs of {self.sizes[-1]:g} GPUs. Raise the last of groups."
            )
        if not all(value == int(value) for value in (*self.sizes, *self.points)):
            raise ParameterError("like: sizes and points must be whole numbers.")
        if not sum(self.size_shares) or not sum(
            rate * share for rate, share in zip(self.rates, self.rate_shares, strict=True)
        ):
            raise ParameterError("like: size_shares and rates must not all be 0.")
        if self.total > MAX_JOBS:
            raise ParameterError(
                f"like: {self.jobs:,} jobs at load {self.load:g} exceed the limit of {MAX_JOBS:,}."
                " Choose a smaller load, or fit a part of the trace."
            )

    def _check_limits(self) -> None:
        """Raise an error for time limits or virtual clusters that contradict each other."""
        ascending = [limit or math.inf for limit in self.limits]
        if ascending != sorted(set(ascending)) or (self.limits and not sum(self.limit_shares)):
            raise ParameterError(
                "like: limits must be in ascending order (0 = no limit, last), and limit_shares not"
                " all 0."
            )
        if self.homes and max(self.homes) >= len(self.home_shares):
            raise ParameterError("like: homes must be indices into home_shares.")
        if self.home_shares and not sum(self.home_shares):
            raise ParameterError("like: home_shares must not all be 0.")

    @property
    def total(self) -> int:
        """Number of jobs to generate."""
        return max(2, round(self.jobs * self.load))

    def machines(self) -> Cluster:
        """Return the cluster of the workload."""
        return Cluster.parse(self.cluster.replace("+", ","))

    def make(self) -> Trace:
        """Return the jobs; equal parameters give equal jobs.

        Notes
        -----
        Every hour has a score: of its hour of the day and day of the week, plus autocorrelated
        noise. Hours sorted by score get the rates in ascending order, so hourly counts keep their
        distribution, and bursts their sizes. Sizes and run times are drawn the same way: jobs
        sorted by a score (of the user, plus noise correlated with the user's previous job) get the
        sizes in ascending order; within each size group, jobs sorted by a second score get the run
        times.
        """
        jobs = self.total
        hour_rng, second_rng, user_rng, size_rng, time_rng, kind_rng, extra_rng = random_streams(
            self.seed, 7
        )
        submit = self._draw_submissions(hour_rng, second_rng, jobs)
        user = self._draw_users(user_rng, jobs)
        size_score, time_score = (
            self._user_scores(scores, rng)[user]
            + spread * _correlated_normals(user, correlation, rng)
            for scores, spread, correlation, rng in zip(
                (self.user_sizes, self.user_times),
                self.user_spread,
                self.alike,
                (size_rng, time_rng),
                strict=True,
            )
        )
        gpus = np.array(self.sizes)[
            pick_by_share(np.array(self.size_shares), _even_ranks(size_score, size_rng))
        ]
        group = np.searchsorted(np.array(self.groups), gpus)
        columns: dict[str, object] = {
            "job_id": pd.RangeIndex(1, jobs + 1).astype("str"),
            "submit_time_s": submit,
            "num_gpus": gpus,
            "duration_s": (run_s := self._draw_run_times(group, time_score, time_rng)),
            **draw_columns(self._limit_parameters(), run_s, user, extra_rng),
        }
        if self.users or self.others:
            # Users are numbered in order of their first jobs.
            order, _ = pd.factorize(user)
            columns["user"] = [f"user {index + 1}" for index in order.tolist()]
        for column, names, shares in (
            ("gpu_type", _split_names(self.types), self.type_shares),
            ("model", _split_names(self.models), self.model_shares),
        ):
            if names:
                index = _draw_by_group(np.array(shares).reshape(-1, len(names)), group, kind_rng)
                columns[column] = np.array([*names, ""], object)[index]
                if column == "model" and any(self.batches):
                    sizes = np.array([*self.batches, 0.0])[index]
                    columns["batch_size"] = np.where(sizes > 0, sizes, np.nan)
        epoch = (_MONDAY + pd.Timedelta(self.begins, "h")).isoformat() if self.calendar else ""
        name = f"Made: like a trace, load {self.load:g}, seed {self.seed}"
        return Trace.of(pd.DataFrame(columns), name=name, epoch=epoch)

    def _limit_parameters(self) -> FittedLimits:
        """Return the parameters for limits, outcomes and virtual clusters."""
        return FittedLimits(
            **{field.name: getattr(self, field.name) for field in fields(FittedLimits)}
        )

    def _draw_submissions(
        self, hour_rng: np.random.Generator, second_rng: np.random.Generator, jobs: int
    ) -> Floats:
        """Return the submissions of all jobs in whole seconds, in ascending order.

        From 0 to `days`, with the rates and scores of hours, and bursts.
        """
        span_s = self.days * 24 * HOUR_S
        hours, rest_s = int(span_s // HOUR_S), span_s % HOUR_S
        clock = (int(self.begins) + np.arange(hours)) % WEEK_H
        score = (
            _correlated_normals(np.zeros(hours, np.int64), self.persistence, hour_rng) * self.noise
        )
        if self.hours:
            score += np.array(self.hours)[clock % 24]
        if self.weekdays:
            score += np.array(self.weekdays)[clock // 24]
        even = (np.arange(hours) + 0.5) / max(hours, 1)
        rate = np.empty(hours + 1)
        rate[np.argsort(score, kind="stable")] = np.array(self.rates)[
            pick_by_share(np.array(self.rate_shares), even)
        ]
        if not rate[:hours].any():
            rate[:hours] = 1.0
        rate[hours] = self.last or (rate[:hours].mean() * rest_s / HOUR_S if hours else 1.0)
        if hours and not rate[0]:  # the first job is at the start of the span
            busy = np.flatnonzero(rate[:hours])
            quiet = int(busy[np.argmin(rate[busy])])
            rate[[0, quiet]] = rate[[quiet, 0]]
        jobs_until = np.rint(np.cumsum(rate) / rate.sum() * jobs).astype(np.int64)
        hour = np.repeat(np.arange(hours + 1), np.diff(jobs_until, prepend=0))
        width = np.where(hour == hours, rest_s, HOUR_S)
        times = np.sort(hour * HOUR_S + second_rng.random(jobs) * width)
        times[[0, -1]] = 0.0, span_s
        # Keep the first job of each hour in place, else sparse hours would merge into one burst.
        is_first = np.diff(hour, prepend=-1) > 0
        is_first[-1] = True
        follow_share = min(
            self.together * jobs / max(jobs - int(np.count_nonzero(is_first)), 1), 1.0
        )
        is_leader = is_first | (second_rng.random(jobs) >= follow_share)
        gap = np.array(self.gaps)[(second_rng.random(jobs) * len(self.gaps)).astype(np.int64)]
        gap_sums_s = np.cumsum(np.where(is_leader, 0.0, np.floor(gap + second_rng.random(jobs))))
        leader = np.maximum.accumulate(np.where(is_leader, np.arange(jobs), 0))
        ends = np.minimum((hour + 1) * HOUR_S - 1, span_s)
        ends[-1] = span_s
        return np.sort(np.minimum(np.floor(times[leader]) + gap_sums_s - gap_sums_s[leader], ends))

    def _draw_users(self, rng: np.random.Generator, jobs: int) -> Ints:
        """Return each job's user: consecutive jobs form runs, users get runs by their shares.

        Users are indices, busy users first. Their shares are met as closely as whole runs allow.
        """
        if not self.users and not self.others:
            return np.zeros(jobs, np.int64)
        shares = np.array(
            [*self.users, *[self.others_share / max(self.others, 1)] * self.others], np.float64
        )
        if not shares.sum():
            shares += 1
        starts_run = rng.random(jobs) >= self.streak
        starts_run[0] = True
        runs = np.count_nonzero(starts_run)
        run_user = pick_by_share(shares, (rng.permutation(runs) + rng.random(runs)) / runs)
        return np.asarray(run_user[np.cumsum(starts_run) - 1], np.int64)

    def _user_scores(self, scores: tuple[float, ...], rng: np.random.Generator) -> Floats:
        """Return a score per user: given for busy users, drawn with equal spread for others.

        A last 0 is for traces without users.
        """
        spread = float(np.std(scores)) if scores else 0.0
        return np.concatenate((np.array(scores), spread * rng.standard_normal(self.others), [0.0]))

    def _draw_run_times(
        self, group: NDArray[np.intp], score: Floats, rng: np.random.Generator
    ) -> Floats:
        """Return run times in whole seconds, in the order of the scores within a size group."""
        run_s = np.empty(len(group))
        ends = np.cumsum(np.array(self.points, np.int64))
        for index, points in enumerate(map(int, self.points)):
            members = np.flatnonzero(group == index)
            means = np.array(self.times[ends[index] - points : ends[index]])
            run_s[members] = _interpolate_means(means, _even_ranks(score[members], rng))
        return np.maximum(np.rint(run_s), 1.0)


def _split_names(text: str) -> list[str]:
    """Return the names in a text that joins them with a plus."""
    return text.split("+") if text else []


def _interpolate_means(means: Floats, rank: Floats) -> Floats:
    """Return run times at ranks from the means of consecutive parts.

    Interpolates logarithms through the midpoints of the parts and extrapolates at both ends. The
    longest tenth, which holds most of the time, is then scaled to keep the mean of each part.
    """
    if len(means) == 1:
        return np.full(len(rank), means[0])
    edges = rank_edges(len(means))
    middles, log = (edges[:-1] + edges[1:]) / 2, np.log(means)
    first_slope = (log[1] - log[0]) / (middles[1] - middles[0])
    last_slope = (log[-1] - log[-2]) / (middles[-1] - middles[-2])
    knots = np.concatenate(([0.0], middles, [1.0]))
    log_values = np.concatenate(
        ([log[0] - first_slope * middles[0]], log, [log[-1] + last_slope * (1 - middles[-1])])
    )
    even = (np.arange(_RANKS_PER_PART) + 0.5) / _RANKS_PER_PART
    inner = edges[:-1, None] + np.diff(edges)[:, None] * even
    scale = means / np.exp(np.interp(inner, knots, log_values)).mean(axis=1)
    scale[edges[:-1] < _TAIL_RANK] = 1.0
    part = np.clip(np.searchsorted(edges, rank, side="right") - 1, 0, len(means) - 1)
    return np.asarray(np.exp(np.interp(rank, knots, log_values)) * scale[part], np.float64)


def _even_ranks(score: Floats, rng: np.random.Generator) -> Floats:
    """Return numbers in the order of the scores that cover 0 to 1 evenly."""
    rank = np.empty(len(score))
    rank[np.argsort(score, kind="stable")] = np.arange(len(score))
    return np.asarray((rank + rng.random(len(score))) / max(len(score), 1), np.float64)


def _correlated_normals(key: Ints, correlation: float, rng: np.random.Generator) -> Floats:
    """Return standard normal numbers, each correlated with the previous one of its key."""
    normal = rng.standard_normal(len(key))
    if not correlation:
        return normal
    new_weight, previous = math.sqrt(1 - correlation**2), dict[int, float]()
    values = normal.tolist()
    for index, current in enumerate(key.tolist()):
        value = values[index]
        if current in previous:
            value = correlation * previous[current] + new_weight * value
        previous[current] = values[index] = value
    return np.array(values)


def _draw_by_group(shares: Floats, group: NDArray[np.intp], rng: np.random.Generator) -> Ints:
    """Return a choice per job by the shares of its group; the number of choices = none."""
    choices = np.full(len(group), shares.shape[1], np.int64)
    uniform = rng.random(len(group))
    for index, row in enumerate(shares):
        is_member = group == index
        if row.sum():
            choices[is_member] = pick_by_share(row, uniform[is_member])
    return choices

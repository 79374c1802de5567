"""Shared parts of elastic policies: sizes and speeds of jobs, markets of GPUs, and placement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

from allocators.elastic.unit_placement import (
    NOWHERE,
    Areas,
    Range,
    UnitPlacer,
    admissible,
    gpus_by_node,
)
from allocators.placement import Placer
from allocators.toolkit import none_of_jobs
from sim.contract import (
    Decided,
    Demand,
    Floats,
    Grant,
    Ints,
    JobId,
    Reason,
    Shape,
    Tuning,
    Value,
    View,
    param,
)

GRANULARITIES: Final = ("gpu", "node")
SIZES: Final = ("powers", "all")
Profile = Callable[[View, Ints, Sequence[Shape]], Floats]
"""Estimated work per second of jobs, of shape (jobs, shapes)."""
TuningOf = Callable[[JobId, int], Tuning]
"""(job, units) -> the tuning of the job at that size."""

_JOBS_PER_CALL = 1024  # jobs per call for rates
_MIN_RATE = 1e-12


def granularity_param() -> Any:
    """Declare the policy parameter ``granularity``."""
    return param(
        "gpu",
        title="Unit of allocation",
        choices=GRANULARITIES,
        labels={"gpu": "GPUs", "node": "Whole nodes"},
        help=(
            "Sizes are numbers of GPUs, or whole nodes; nodes of different sizes are then"
            " allocated separately."
        ),
    )


def sizes_param() -> Any:
    """Declare the policy parameter ``sizes``."""
    return param(
        "powers",
        title="Sizes considered",
        choices=SIZES,
        labels={"powers": "Powers of two", "all": "Every size"},
        help=(
            "Powers of two in the job's range, its ends and the request; or every size in the"
            " range."
        ),
    )


def jobs_were(count: int) -> str:
    """Return the beginning of a sentence, such as "45 jobs were"."""
    return "1 job was" if count == 1 else f"{count:,} jobs were"


class SizeOptions(NamedTuple):
    """The sizes that a job may have in a market.

    Parameters
    ----------
    job : int
        The job.
    sizes : tuple of int
        In units, ascending.
    rates : tuple of float
        Estimated work per second at each size, above 0.
    held : int
        Units held now; 0 = waiting.
    fixed : bool
        Whether it must not be resized or stopped, because it is not preemptible or spans markets.
    """

    job: JobId
    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    held: int
    fixed: bool = False


class Market(NamedTuple):
    """Units of one GPU type to divide, and the jobs that may have them.

    Whole nodes of different sizes are different markets.

    Parameters
    ----------
    pools : tuple of int
        Pools of nodes.
    unit : int
        GPUs per unit.
    capacity : int
        Units to divide: unused ones, and those held by `running`.
    running, waiting : tuple of SizeOptions
        In order of job id, which is the order of arrival.
    """

    pools: tuple[int, ...]
    unit: int
    capacity: int
    running: tuple[SizeOptions, ...]
    waiting: tuple[SizeOptions, ...]


ChooseSizes = Callable[[Market], Mapping[JobId, int]]
"""Market -> units of every running job (0 = stop it) and of the waiting jobs that start."""


class _HeldSize(NamedTuple):
    """Size of a running job as long as it keeps its grant; no option outside all markets."""

    grant: Grant
    area: int
    option: SizeOptions | None


class Menu:
    """Sizes and estimated speeds of all active jobs; turns chosen sizes into grants.

    Parameters
    ----------
    place : Placer
        Chooses nodes and orders GPU types.
    granularity : str
        Unit of sizes: "gpu" or "node".
    sizes : str
        "powers" or "all": the admissible sizes between a job's least and largest.
    most : int, GPUs
        Largest size of any job, but never below its least; 0 = no cap.
    profile : Profile or None
        Source of estimated speeds; None = the view's estimates.

    Notes
    -----
    Each GPU type is a market of its own; our reading, the papers have one type. A running job stays
    in its market. Jobs confined to disjoint sets of nodes of a type are in different markets, and
    so are whole nodes of different sizes, the largest first. Rates are estimated once per job.
    """

    def __init__(
        self,
        place: Placer,
        *,
        granularity: str,
        sizes: str,
        most: int = 0,
        profile: Profile | None = None,
    ) -> None:
        self._place, self._whole, self._every, self._cap = (
            place,
            granularity == "node",
            sizes == "all",
            most,
        )
        self._profile = profile or _rates_of_view
        self._placer = UnitPlacer(place, whole=self._whole)
        self._areas = Areas(place, whole=self._whole)
        self._offers: dict[JobId, dict[int, SizeOptions]] = {}
        self._held: dict[JobId, _HeldSize] = {}
        self._area_of_start: dict[JobId, int] = {}
        self._most: dict[tuple[int, int], int] = {}
        self._admissible: dict[tuple[int, int, float, float, float], tuple[int, ...]] = {}
        self.impossible_jobs: frozenset[JobId] = frozenset()
        """Waiting jobs that had no size for this cluster at the last `divide`; to be refused."""

    # -- events
    # ----------------------------------------------------------------------------------------------

    def feed(self, view: View) -> bool:
        """Delete finished jobs; return True if jobs or nodes came or went."""
        delta = view.delta
        self.forget(delta.finished)
        return bool(delta.arrived or delta.finished or delta.evicted or delta.nodes)

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Delete the records of finished or refused jobs."""
        for job in jobs:
            self._offers.pop(job, None)
            self._held.pop(job, None)

    # -- sizes
    # ----------------------------------------------------------------------------------------------

    def divide(
        self, view: View, choose: ChooseSizes, last: JobId | None = None
    ) -> dict[JobId, int]:
        """Choose sizes in every market, in the order of GPU types, and return them.

        Also sets `impossible_jobs`: the waiting GPU jobs without a possible size.

        A waiting job that gets no size in one market is offered in the next.

        Parameters
        ----------
        view : View
            The instant.
        choose : callable
            Chooses the sizes in a market.
        last : int or None
            Last waiting job to offer; None = offer all.

        Returns
        -------
        dict
            Job -> units in its market, for every running job in a market (0 = stop it) and every
            waiting job that starts.
        """
        running, waiting = view.running.ids.tolist(), view.waiting.ids.tolist()
        self._add_jobs(view, [*running, *waiting])
        self.impossible_jobs = frozenset(
            [job for job in waiting if not self._offers[job] and view.demand(job).gpus]
        )
        waiting = waiting if last is None else [job for job in waiting if job <= last]
        held: list[list[SizeOptions]] = [[] for _ in self._areas.all]
        for job in running:
            now = self._held_size(view, job)
            if now.option is not None:
                held[now.area].append(now.option)
        offers, shares = self._offers, dict[JobId, int]()
        self._area_of_start = {}
        for at, (area, options) in enumerate(zip(self._areas.all, held, strict=True)):
            queue = [
                option
                for job in waiting
                if (option := offers[job].get(at)) is not None and job not in shares
            ]
            if queue or options:
                capacity = self._placer.free_units(view.room, area) + sum(
                    [option.held for option in options]
                )
                chosen = choose(
                    Market(area.pools, area.unit, capacity, tuple(options), tuple(queue))
                )
                shares.update({option.job: chosen[option.job] for option in options})
                started = {
                    option.job: units for option in queue if (units := chosen.get(option.job, 0))
                }
                shares.update(started)
                self._area_of_start.update(dict.fromkeys(started, at))
        return shares

    def explain(self, decided: Decided, job: JobId, rule: str) -> Reason:
        """Explain why a job got no size, after the policy's clause on how sizes are chosen."""
        offers = self._offers.get(job, {})
        least = [option.sizes[0] * self._areas.all[at].unit for at, option in offers.items()]
        if not least:
            return Reason("no size of it is possible on this cluster")
        holders = [one for one in decided.grants if decided.held_gpus(one)]
        free = decided.free_for(job)
        values: dict[str, Value] = {
            "least": min(least),
            "holders": len(holders),
            "held": sum(decided.held_gpus(one) for one in holders),
            "free": free,
        }
        room = (
            "{free:gpus_were} free for its smallest size of {least:gpus}"
            if free < min(least)
            else "{free:gpus_were} left free"
        )
        return Reason(f"{rule}: {{holders:jobs}} got {{held:gpus}}, {room}", values)

    def first_passed_job(self, view: View, shares: Mapping[JobId, int]) -> JobId | None:
        """Return the earliest waiting job without units before one that starts, or None.

        Jobs without a possible size do not count.
        """
        first: JobId | None = None
        for job in view.waiting.ids.tolist():
            if shares.get(job, 0):
                if first is not None:
                    return first
            elif first is None and self._offers[job]:
                first = job
        return None

    def _add_jobs(self, view: View, jobs: Collection[JobId]) -> None:
        """Add the size options of new jobs; if the areas change, of all jobs again.

        Now and then deletes the records of jobs that are no longer active.
        """
        offers, demand = self._offers, view.demand
        if len(offers) > 2 * len(jobs) + _JOBS_PER_CALL:  # refused jobs are not reported
            active = set(jobs)
            self._offers = offers = {job: offer for job, offer in offers.items() if job in active}
            self._held = {job: held for job, held in self._held.items() if job in active}
        new = [job for job in jobs if job not in offers]
        if self._areas.add_pools(view, {demand(job).pools for job in new if demand(job).gpus}):
            for cache in (self._offers, self._held, self._most, self._admissible):
                cache.clear()  # they refer to the old areas
            new = list(jobs)
        for job in new:
            offers[job] = {}
        for at in range(len(self._areas.all)) if new else ():
            self._estimate_sizes(view, at, new)

    def _estimate_sizes(self, view: View, at: int, jobs: Iterable[JobId]) -> None:
        """Store the size options of jobs in an area: the sizes with an estimated rate above 0."""
        sizes_of = {job: sizes for job in jobs if (sizes := self._sizes(view, job, at))}
        union = np.array(
            sorted({size for sizes in set(sizes_of.values()) for size in sizes}),
            np.int64,
        )
        shapes = [self._shape(view, at, int(size)) for size in union]
        columns = {sizes: np.searchsorted(union, sizes) for sizes in set(sizes_of.values())}
        ids = sorted(sizes_of)
        for start in range(0, len(ids), _JOBS_PER_CALL):
            some = ids[start : start + _JOBS_PER_CALL]
            for job, row in zip(
                some, self._profile(view, np.array(some, np.int64), shapes), strict=True
            ):
                sizes = sizes_of[job]
                rates = row[columns[sizes]]
                able = rates > 0
                if able.all():
                    self._offers[job][at] = SizeOptions(job, sizes, tuple(rates.tolist()), 0)
                elif able.any():
                    self._offers[job][at] = SizeOptions(
                        job, tuple(np.array(sizes)[able].tolist()), tuple(rates[able].tolist()), 0
                    )

    def _shape(self, view: View, at: int, units: int) -> Shape:
        """Return the GPUs by type, on the fewest nodes, of a number of units in an area."""
        area = self._areas.all[at]
        gpus = units * area.unit
        return Shape(
            tuple(gpus if kind == area.type_at else 0 for kind in range(len(view.cluster.types))),
            ceil(gpus / area.per_node),
        )

    def _sizes(self, view: View, job: JobId, at: int) -> tuple[int, ...]:
        """Return the sizes in units that a job may have in an area, ascending; cached.

        Empty if the job requests no GPUs or cannot use the area.
        """
        demand, area = view.demand(job), self._areas.all[at]
        if not demand.gpus or not set(demand.pools).intersection(area.pools):
            return ()
        key = (
            demand.key,
            at,
            view.one("min_gpus", job),
            view.one("max_gpus", job),
            view.one("gpus", job),
        )
        sizes = self._admissible.get(key)
        if sizes is None:
            most = min(key[3], self._cap) if self._cap else key[3]
            sizes = self._admissible[key] = admissible(
                Range(key[2], most, key[4]),
                area.unit,
                self._max_units(view, demand, at),
                every=self._every,
            )
        return sizes

    def _max_units(self, view: View, demand: Demand, at: int) -> int:
        """Return the most units that an empty area could give to a demand; cached."""
        key = (demand.key, at)
        if key not in self._most:
            self._most[key] = self._placer.max_units(view, demand, self._areas.all[at])
        return self._most[key]

    def _held_size(self, view: View, job: JobId) -> _HeldSize:
        """Return the present size of a running job; cached while it keeps its grant."""
        grant, held = view.grants[job], self._held.get(job)
        if held is None or held.grant is not grant:
            held = self._held[job] = self._read_grant(view, job, grant)
        return held

    def _read_grant(self, view: View, job: JobId, grant: Grant) -> _HeldSize:
        """Return the area and present size of a running job's grant.

        The size is fixed if the job is not preemptible or spans areas. There is no option if a node
        is outside all areas.
        """
        held = gpus_by_node(grant)
        areas = self._areas.area_indices(held)
        if not areas or NOWHERE in areas:
            return _HeldSize(grant, NOWHERE, None)
        at = min(areas)
        units = ceil(sum(held.values()) / self._areas.all[at].unit)
        if len(areas) > 1:
            return _HeldSize(
                grant,
                at,
                SizeOptions(job, (units,), (self._rate(view, job, grant),), units, fixed=True),
            )
        offer = self._offers[job].get(at, SizeOptions(job, (), (), 0))
        if units not in offer.sizes:
            offer = self._add_size(view, offer, at, units, grant)
        if view.one("preemptible", job):
            return _HeldSize(grant, at, offer._replace(held=units))
        return _HeldSize(
            grant,
            at,
            SizeOptions(job, (units,), (offer.rates[offer.sizes.index(units)],), units, fixed=True),
        )

    def _add_size(
        self, view: View, offer: SizeOptions, at: int, units: int, grant: Grant
    ) -> SizeOptions:
        """Return the options with the size added that another policy granted to the job."""
        rate = float(
            self._profile(view, np.array([offer.job], np.int64), [self._shape(view, at, units)])[
                0, 0
            ]
        )
        size_rates = [
            *zip(offer.sizes, offer.rates, strict=True),
            (units, rate if rate > 0 else self._rate(view, offer.job, grant)),
        ]
        sizes, rates = zip(*sorted(size_rates), strict=True)
        return SizeOptions(offer.job, sizes, rates, 0)

    @staticmethod
    def _rate(view: View, job: JobId, grant: Grant) -> float:
        """Return the estimated rate of a job with its grant, above 0."""
        return max(view.estimates.rate(job, grant), _MIN_RATE)

    # -- nodes
    # ----------------------------------------------------------------------------------------------

    def make_grants(
        self,
        view: View,
        sizes: Mapping[JobId, int],
        tuning: TuningOf | None = None,
        *,
        in_order: bool = False,
    ) -> dict[JobId, Grant | None]:
        """Turn the sizes of `divide` into grants, and start jobs without GPUs that fit.

        Parameters
        ----------
        view : View
            The instant of that `divide`.
        sizes : mapping
            Job -> units. A running job that is missing or fixed keeps its grant.
        tuning : callable or None
            (job, units) -> the job's tuning at that size; None = keep it, plain for new grants.
        in_order : bool
            Whether waiting jobs are placed in order of submission, up to the first that does not
            fit.

        Returns
        -------
        dict
            Changes only. Shrinking jobs stay on their own nodes; then waiting jobs are placed,
            largest first, then growing ones. If a size does not fit, the next smaller one is tried;
            if none does, the job continues to wait or keeps its grant.
        """
        resizing = _Resizing(view, tuning, {})
        starts: list[tuple[int, JobId, int]] = []
        grows: list[tuple[int, JobId, int]] = []
        for job, units in sorted(sizes.items()):
            if job not in view.grants:
                if units:
                    starts.append(
                        (-units * self._areas.all[self._area_of_start[job]].unit, job, units)
                    )
                continue
            now = self._held_size(view, job)
            if now.option is None or now.option.fixed:
                continue
            if units > now.option.held:
                grows.append((-units * self._areas.all[now.area].unit, job, units))
            else:
                self._shrink_or_stop(resizing, now.grant, now.option, units)
        for _, job, units in sorted(starts, key=itemgetter(1) if in_order else None):
            if not self._start(resizing, job, units) and in_order:
                break
        for _, job, units in sorted(grows):
            self._grow(resizing, job, units)
        self._start_without_gpus(resizing)
        return resizing.changes

    def _shrink_or_stop(
        self, resizing: _Resizing, grant: Grant, option: SizeOptions, units: int
    ) -> None:
        """Stop a job at 0 units, shrink it, or at its present size update its tuning."""
        view, job = resizing.view, option.job
        if not units:
            view.room.give(grant)
            resizing.changes[job] = None
        elif units < option.held:
            smaller = self._placer.shrink(
                view, view.demand(job), grant, units, self._areas.all[self._held[job].area]
            )
            if smaller is not None:
                resizing.set_grant(job, smaller, units)
        elif resizing.tuning is not None and resizing.tuning(job, units) != grant.tuning:
            resizing.set_grant(job, grant, units)

    def _start(self, resizing: _Resizing, job: JobId, units: int) -> bool:
        """Place a waiting job at the largest size up to `units` that fits; return True if any."""
        at = self._area_of_start[job]
        for size in reversed([size for size in self._offers[job][at].sizes if size <= units]):
            grant = self._placer.find(
                resizing.view, resizing.view.demand(job), size, self._areas.all[at]
            )
            if grant is not None:
                resizing.set_grant(job, grant, size)
                return True
        return False

    def _grow(self, resizing: _Resizing, job: JobId, units: int) -> None:
        """Grow a running job to the largest size up to `units` that fits, or update its tuning."""
        grant, at, option = self._held[job]
        assert option is not None, "only jobs in a market can grow"
        sizes = [size for size in reversed(option.sizes) if option.held < size <= units]
        larger = self._placer.grow(
            resizing.view, resizing.view.demand(job), grant, sizes, self._areas.all[at]
        )
        if larger is None:
            self._shrink_or_stop(resizing, grant, option, option.held)
        else:
            resizing.set_grant(
                job, larger, sum(gpus_by_node(larger).values()) // self._areas.all[at].unit
            )

    def _start_without_gpus(self, resizing: _Resizing) -> None:
        """Start waiting jobs without GPUs that fit, in order of arrival."""
        view = resizing.view
        if len(view.waiting):
            full: set[int] = set()
            for job in view.waiting.ids[view.waiting.gpus == 0].tolist():
                demand = view.demand(job)
                if demand.key not in full:
                    grant = self._place(view, demand)
                    if grant is None:
                        full.add(demand.key)
                    else:
                        resizing.changes[job] = grant


class _Resizing(NamedTuple):
    """View, tunings and grant changes of one conversion of sizes into grants."""

    view: View
    tuning: TuningOf | None
    changes: dict[JobId, Grant | None]

    def set_grant(self, job: JobId, grant: Grant, units: int) -> None:
        """Record a new grant of a job, with its tuning."""
        self.changes[job] = (
            grant if self.tuning is None else replace(grant, tuning=self.tuning(job, units))
        )


def _rates_of_view(view: View, ids: Ints, shapes: Sequence[Shape]) -> Floats:
    """Return the view's estimated rates of jobs on shapes."""
    return view.estimates.rates(ids, shapes)


@dataclass
class Choices:
    """Counts jobs and records whether any had a choice of sizes."""

    jobs: int = 0
    any_choice: bool = False

    def note_options(self, options: Iterable[SizeOptions]) -> None:
        """Record whether any of these jobs has a choice of sizes."""
        self.any_choice = self.any_choice or any(len(option.sizes) > 1 for option in options)

    def remark(self, name: str, did: str) -> tuple[str, ...]:
        """Return a note if jobs arrived but none had a choice of sizes.

        `did` says what the policy did instead.
        """
        if not self.jobs or self.any_choice:
            return ()
        return (
            f"{name} resized nothing, since {none_of_jobs(self.jobs)} a choice of sizes: {did}.",
        )

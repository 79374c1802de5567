"""Rounds around any allocator: it is asked at multiples of a round's length only, as Blox runs
every policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Final

from allocators.nesting import Inside, Make, SubView, is_tick, next_tick
from allocators.reasons import next_decision
from sim.contract import (
    EMPTY,
    Allocator,
    Cadence,
    Card,
    Decided,
    Delta,
    JobId,
    Needs,
    ParameterError,
    Plan,
    Reason,
    Spec,
    View,
    param,
    remarks_of,
)

_NO_NEWS: Final = Delta()
_TICKS_IN_VAIN: Final = 3  # so many in a row, and the one inside waits for nothing any more


@dataclass
class Rounds(Allocator):
    """One inner allocator, which is notified and decides only when a round begins.

    Notes
    -----
    Rounds begin at every multiple of ``every_s`` after the first submission [1]_. What arrived,
    ended or failed since the last one is told to the inner allocator at the next, all at once; its
    own wake-ups and ticks are put off to the first round that begins at or after them. GPUs that
    come free within a round so stay idle until it ends, and a job that arrives waits for its end,
    even where there is room.

    References
    ----------
    .. [1] S. Agarwal et al., "Blox: A Modular Toolkit for Deep Learning Schedulers", EuroSys 2024:
       rounds of 300 s. That jobs end, and free their GPUs in the record, in the middle of a round
       is our reading.
    """

    every_s: float = param(
        300.0, title="Length of a round", unit="s", low=1, high=86_400, help="Length of a round."
    )
    inner: Spec = param(  # noqa: RUF009
        Spec("fifo"),
        title="Policy inside",
        help="The policy that decides at the start of each round.",
    )
    _inside: Inside | None = field(init=False, repr=False, default=None)
    _tick_s: float = field(init=False, repr=False, default=0.0)
    _idle_ticks: int = field(init=False, repr=False, default=0)

    card = Card(
        title="Rounds",
        brief="another policy, in rounds of equal length",
        what=("Lets another policy decide only at the start of a round, every 300 s by default."),
        cost=("Freed GPUs idle, and new jobs wait, until the round ends."),
        limits="The limits of the inner policy apply.",
        source="S. Agarwal et al., Blox, EuroSys 2024",
        certainty=(
            "our reading: a job that ends within a round ends then, and its GPUs are given out in"
            " the next"
        ),
        goals=("baseline",),
        how=(
            ("Time is divided into rounds of equal length, counted from the first submission."),
            (
                "When a round begins, the inner policy learns what arrived, ended or failed"
                " since the last one."
            ),
            "It then decides as if all of that had happened just now.",
            "Within a round nothing is started or stopped.",
        ),
    )

    def assemble(self, make: Make) -> None:
        """Build the allocator inside.

        Raises
        ------
        ParameterError
            If it cannot be built.
        """
        self._inside = Inside(make(self.inner))

    @property
    def cadence(self) -> Cadence:
        """Asked when a round begins, whatever happens in between."""
        return Cadence(on_arrival=False, on_finish=False, on_capacity=False, every_s=self.every_s)

    @property
    def needs(self) -> Needs:
        """What the allocator inside needs."""
        return self._built().allocator.needs

    def allocate(self, view: View, /) -> Plan:
        """Ask the allocator inside if a round begins and it would have been asked meanwhile."""
        inside, now_s = self._built(), view.now_s
        inside.notify(view.delta)
        if view.delta != _NO_NEWS:
            self._idle_ticks = 0
        if not is_tick(now_s, self.every_s):  # installed within a round, or a plan has just landed
            return Plan(wake_at_s=next_tick(now_s, self.every_s))
        ticks = self._tick_s <= now_s
        if ticks:
            self._tick_s = next_tick(now_s, inside.cadence.every_s)
        plan = EMPTY
        if ticks or inside.is_due(now_s, active=True):
            plan = inside.decide(SubView(view, inside.news()))
            self._idle_ticks = 0 if plan.changes or plan.refuse else self._idle_ticks + ticks
        return plan._replace(wake_at_s=self._next_beginning())

    def explain(self, decided: Decided, job: JobId, /) -> Reason | None:
        """State when the next round begins, or what the policy inside states."""
        now_s = decided.view.now_s
        if not is_tick(now_s, self.every_s):
            return next_decision(next_tick(now_s, self.every_s), "the next round began")
        return self._built().allocator.explain(decided, job)

    def _next_beginning(self) -> float:
        """Return when the round begins to which a wake-up or tick of the one inside is put off."""
        # Ticks further apart than rounds must not look like patience at an end, unless they are in
        # vain.
        ticks_on = self._idle_ticks < _TICKS_IN_VAIN
        at_s = min(self._built().wake_at_s, self._tick_s if ticks_on else inf)
        return at_s if at_s == inf or is_tick(at_s, self.every_s) else next_tick(at_s, self.every_s)

    def remarks(self) -> tuple[str, ...]:
        """Return what the allocator inside has to say."""
        return remarks_of(self._built().allocator)

    def _built(self) -> Inside:
        if self._inside is None:
            raise ParameterError(
                "rounds: the inner policy is not built yet. Build this one with allocators.make."
            )
        return self._inside

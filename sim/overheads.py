"""Costs of changes: pauses, checkpoints, lost work and decision delay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol, Self

from sim.clock import STEP_S
from sim.contract import Grant, JobId
from sim.params import param


class Transitions(Protocol):
    """A model of pauses that replaces `Overheads.transition`."""

    def transition(
        self, job: JobId, old: Grant | None, new: Grant, *, restarted: bool
    ) -> tuple[float, float]:
        """Return (overlap_s, pause_s) of a change of grant."""
        ...


@dataclass(frozen=True)
class Overheads:
    """Costs of starting, stopping, saving and deciding; assumptions of the user, 0 by default.

    Notes
    -----
    A running job whose grant changes pays ``restart_s``. A seamless job first runs on at its old
    rate for ``overlap_s`` while both old and new holdings are charged, and then pays
    ``overlap_pause_s``. A job with data sharding adds and removes workers without a pause, and an
    interruption hits one of its replicas, not the job: a lost worker costs its share of
    ``relaunch_s``, a lost server all of it, and no work is lost. These are our readings of
    DLRover's elasticity and flash checkpoints. A job saves a checkpoint every
    ``checkpoint_every_s`` seconds of progress, each taking ``checkpoint_s``, which lowers its rate
    by the factor ``every / (every + cost)``; an outage costs the work since the last one. A planned
    stop under "checkpoint" saves first and loses no work.
    """

    start_s: float = param(
        0.0,
        title="Pause at the first start",
        unit="s",
        low=0,
        high=86_400,
        help="Pause at the first start, e.g. to load data.",
    )
    restart_s: float = param(
        0.0,
        title="Pause at a restart",
        unit="s",
        low=0,
        high=86_400,
        help="Pause when a job resumes or its GPUs change.",
    )
    checkpoint_every_s: float = param(
        1800.0,
        title="Time between checkpoints",
        unit="s",
        low=0,
        high=1e7,
        help="Progress between two checkpoints; 0 = never saved, an outage loses everything.",
    )
    checkpoint_s: float = param(
        0.0,
        title="Time to save a checkpoint",
        unit="s",
        low=0,
        high=86_400,
        help="Time that one periodic checkpoint takes.",
    )
    on_preempt: str = param(
        "checkpoint",
        title="When a job is preempted",
        choices=("checkpoint", "lose_all", "forbidden"),
        labels={
            "checkpoint": "Keeps its work",
            "lose_all": "Loses its work",
            "forbidden": "Must not be stopped",
        },
        help=(
            "A stopped job keeps its work, loses all of it, or must not be stopped. A trace column"
            " 'preemptible' overrides it per job."
        ),
    )
    latency_s: float = param(
        0.0,
        title="Delay of a decision",
        unit="s",
        low=0,
        high=86_400,
        help="Time from a decision to its effect.",
    )
    latency_per_job_s: float = param(
        0.0,
        title="Delay per active job",
        unit="s",
        low=0,
        high=3600,
        help="Further delay of a decision for every active job.",
    )
    overlap_s: float = param(
        0.0,
        title="Overlap of a seamless move",
        unit="s",
        low=0,
        high=86_400,
        help=(
            "Time during which a moved job still runs at its old rate and holds old and new GPUs;"
            " for policies that move jobs seamlessly."
        ),
    )
    overlap_pause_s: float = param(
        -1.0,
        title="Pause after the overlap",
        unit="s",
        low=-1,
        high=86_400,
        help="Pause after the overlap of a seamless move; -1 = as long as a restart.",
    )
    relaunch_s: float = param(
        0.0,
        title="Time to relaunch a replica",
        unit="s",
        low=0,
        high=86_400,
        help=(
            "Time to relaunch one replica after its interruption, for jobs whose workers take"
            " data in small pieces."
        ),
    )

    def without_overlap(self) -> Self:
        """Return these costs for changes that are not seamless: without an overlap."""
        return replace(self, overlap_s=0.0)

    def transition(
        self, job: JobId, old: Grant | None, new: Grant, *, restarted: bool
    ) -> tuple[float, float]:
        """Return (overlap_s, pause_s) of a change of grant.

        The overlap is the time in which the job holds old and new resources; the pause is without
        progress.

        Parameters
        ----------
        job : int
            Row of the job.
        old : Grant or None
            Grant of a running job; None = it was waiting.
        new : Grant
            The next grant.
        restarted : bool
            Whether a waiting job has run before.
        """
        del job
        if old is None:
            return 0.0, self.restart_s if restarted else self.start_s
        if (
            old.tuning.sharding
            and new.tuning.sharding
            and [gang.servers for gang in old.gangs] == [gang.servers for gang in new.gangs]
        ):
            return 0.0, 0.0
        return self.overlap_s, (
            self.overlap_pause_s if self.overlap_s and self.overlap_pause_s >= 0 else self.restart_s
        )

    def relaunch(self, grant: Grant, hit: float) -> tuple[str, float]:
        """Return the role of the replica that an interruption hits, and the pause in seconds.

        Parameters
        ----------
        grant : Grant
            Grant of a job with data sharding.
        hit : float
            Position of the hit replica among all replicas, from 0 to 1.
        """
        workers = sum([sum(gang.workers.count) for gang in grant.gangs])
        servers = sum([sum(gang.servers.count) for gang in grant.gangs if gang.servers is not None])
        return (
            ("worker", self.relaunch_s / workers)
            if hit * (workers + servers) < workers
            else ("server", self.relaunch_s)
        )

    @property
    def period_s(self) -> float:
        """Seconds between the starts of two periodic checkpoints: progress and saving."""
        return self.checkpoint_every_s + self.checkpoint_s

    def saves_within(self, running_s: float) -> int:
        """Return the number of periodic checkpoints completed in `running_s` seconds.

        `running_s` is a sum of rounded times; a checkpoint missed by less than half a step counts.
        """
        return int((running_s + STEP_S / 2) // self.period_s) if self.checkpoint_every_s else 0

    @property
    def efficiency(self) -> float:
        """Share of the rate that remains with periodic checkpoints."""
        return self.checkpoint_every_s / self.period_s if self.checkpoint_every_s else 1.0

    def latency(self, active: int) -> float:
        """Return the seconds from decision to effect with `active` active jobs."""
        return self.latency_s + self.latency_per_job_s * active


CHECKPOINT_SOURCE: Final = (
    "GPT-2 of 1.5 billion parameters on two A100 (DLRover's flash checkpoint; NAS of 100 MB/s, SSD"
    " of 2 GB/s, flash = host memory)"
)


class CheckpointTimes(NamedTuple):
    """Seconds of training lost to saving a checkpoint, and seconds to load one."""

    save_s: float
    load_s: float


CHECKPOINTS: Final[dict[str, CheckpointTimes]] = {
    "ddp-nas": CheckpointTimes(135, 166),
    "ddp-ssd": CheckpointTimes(18.2, 9.3),
    "ddp-flash": CheckpointTimes(2.2, 3.7),
    "fsdp-nas": CheckpointTimes(132, 158),
    "fsdp-ssd": CheckpointTimes(51, 18),
    "fsdp-flash": CheckpointTimes(2.9, 15.1),
    "zero1-nas": CheckpointTimes(185, 202),
    "zero1-ssd": CheckpointTimes(14.9, 8.9),
    "zero1-flash": CheckpointTimes(1.4, 4.8),
    "zero3-nas": CheckpointTimes(127, 146),
    "zero3-ssd": CheckpointTimes(9.5, 3.9),
    "zero3-flash": CheckpointTimes(1.0, 1.9),
    "megatron-nas": CheckpointTimes(195, 127),
    "megatron-ssd": CheckpointTimes(11, 5.1),
    "megatron-flash": CheckpointTimes(1.2, 2.1),
}
"""Framework and storage -> times from the published table; other models and machines differ."""

"""Parameters of the Slurm policy."""

from __future__ import annotations

from dataclasses import dataclass

from sim.contract import Allocator, param


@dataclass
class SlurmSettings(Allocator):
    """Parameters of the Slurm policy; help texts name the keys of ``slurm.conf``."""

    conf: str = param(
        "",
        title="Your slurm.conf",
        file="slurm.conf",
        include="Include",
        help="Parameters below that differ from their defaults override it.",
    )
    accounts: str = param(
        "",
        title="Accounts (sacctmgr)",
        file="sacctmgr.script",
        help="Output of sacctmgr dump, or sacctmgr commands.",
    )
    qos: str = param(
        "",
        title="QOS (sacctmgr)",
        file="qos.txt",
        help="Output of sacctmgr show qos -P.",
    )
    reservations: str = param(
        "",
        title="Reservations (scontrol)",
        file="reservations.txt",
        help="Output of scontrol show res -o; the trace needs dates.",
    )
    usage: str = param(
        "",
        title="Past usage (sshare)",
        file="sshare.txt",
        help="Output of sshare -alP: usage of each user before the first job.",
    )
    weight_age: int = param(
        1000,
        title="Weight of age",
        low=0,
        high=4_000_000_000,
        help="PriorityWeightAge: priority gained by waiting for the maximum age.",
    )
    weight_fairshare: int = param(
        10_000,
        title="Weight of fair share",
        low=0,
        high=4_000_000_000,
        help="PriorityWeightFairshare: priority of a user without usage.",
    )
    weight_size: int = param(
        1000,
        title="Weight of job size",
        low=0,
        high=4_000_000_000,
        help="PriorityWeightJobSize: priority of a job as large as the cluster.",
    )
    favor_small: bool = param(
        False,
        title="Favor small jobs",
        help="PriorityFavorSmall: small jobs gain by size, not large ones.",
    )
    max_age_h: float = param(
        168.0,
        title="Maximum age",
        unit="h",
        low=0.01,
        high=100_000,
        help="PriorityMaxAge: wait after which age adds nothing more.",
    )
    half_life_h: float = param(
        168.0,
        title="Half-life of usage",
        unit="h",
        low=0.0,
        high=100_000,
        help="PriorityDecayHalfLife: usage then counts half; 0 = never forgotten.",
    )
    fairshare: str = param(
        "auto",
        title="Fair share",
        choices=("auto", "tree", "classic"),
        labels={
            "auto": "As slurm.conf suggests",
            "tree": "Fair Tree (from 19.05)",
            "classic": "Classic",
        },
        help="How usage becomes a factor: Fair Tree ranks users, the classic rule halves.",
    )
    dampening: float = param(
        1.0,
        title="Dampening of fair share",
        low=0.01,
        high=1000,
        help="FairShareDampeningFactor; for classic 'Fair share'.",
    )
    topology: str = param(
        "flat",
        title="Topology",
        choices=("flat", "tree"),
        labels={"flat": "Adjacent nodes", "tree": "Racks as switches"},
        file="topology.conf",
        help="Few groups of adjacent nodes, or few racks (switches of the file).",
    )
    backfill: bool = param(
        True,
        title="Backfill",
        help="SchedulerType: sched/backfill, or the main pass alone (sched/builtin).",
    )
    bf_interval_s: float = param(
        30.0,
        title="Backfill interval",
        unit="s",
        low=1,
        high=86_400,
        help="bf_interval: end of a backfill cycle to the next.",
    )
    bf_window_h: float = param(
        24.0,
        title="Backfill window",
        unit="h",
        low=0.1,
        high=100_000,
        help="bf_window: nothing is planned later.",
    )
    bf_max_job_test: int = param(
        500,
        title="Jobs tested per cycle",
        unit="jobs",
        low=1,
        high=1_000_000,
        help="bf_max_job_test: waiting jobs per backfill cycle.",
    )
    bf_max_job_user: int = param(
        0,
        title="Jobs tested per user",
        unit="jobs",
        low=0,
        high=1_000_000,
        help="bf_max_job_user: of one user; 0 = no limit.",
    )
    queue_depth: int = param(
        100,
        title="Depth of the main pass",
        unit="jobs",
        low=1,
        high=1_000_000,
        help="default_queue_depth: jobs tried after a submission or an end; once a minute all.",
    )
    default_limit_h: float = param(
        24.0,
        title="Time limit where a job has none",
        unit="h",
        low=0.01,
        high=100_000,
        help="DefaultTime of the partitions; backfill plans with limits, not run times.",
    )
    size_nodes: str = param(
        "asked",
        title="Nodes that count for the size",
        choices=("asked", "used"),
        labels={"asked": "Those asked for", "used": "Those needed"},
        help=("Nodes asked for (else 1), as in Slurm, or needed; with 'Weight of job size'."),
    )
    limits: str = param(
        "inform",
        title="At the time limit",
        choices=("inform", "kill"),
        labels={"inform": "Jobs run on", "kill": "Jobs are ended"},
        help="Jobs are ended: as failed, at their limit (else 'Time limit where a job has none'),"
        " OverTimeLimit and KillWait. Recorded timeouts have that length already.",
    )
    main_phase_s: float = param(
        -1.0,
        title="First full pass",
        unit="s",
        low=-1,
        high=86_400,
        help="Seconds after the first submission; -1 = drawn from the seed.",
    )
    bf_phase_s: float = param(
        -1.0,
        title="First backfill cycle",
        unit="s",
        low=-1,
        high=86_400,
        help="Seconds after the first submission; -1 = drawn from the seed.",
    )
    calc_phase_s: float = param(
        -1.0,
        title="First renewal of priorities",
        unit="s",
        low=-1,
        high=86_400,
        help="Seconds after the first submission; -1 = drawn from the seed.",
    )
    bf_cycle_s: float = param(
        -1.0,
        title="Length of a backfill cycle",
        unit="s",
        low=-1,
        high=3600,
        help=(
            "Run time of a cycle, before the next interval. -1 = 0.2 ms per pair of tested job"
            " and running or planned job, at most 1 s."
        ),
    )
    bf_instants: tuple[float, ...] = param(
        (),
        title="Known backfill cycles",
        unit="s",
        low=0,
        help=(
            "Cycle starts from a log, after the first submission; then 'Backfill interval'"
            " applies. Empty = none."
        ),
    )

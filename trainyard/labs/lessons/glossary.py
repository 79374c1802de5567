"""Glossary of the app and the documentation."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class GlossaryEntry(NamedTuple):
    """A term of the glossary.

    Parameters
    ----------
    term, also : str
        The term and its synonyms; `also` may be "".
    text : str
        Its meaning.
    page : str
        Page of the documentation with details, relative to docs/.
    """

    term: str
    also: str
    text: str
    page: str


_METRICS: Final = "reference/metrics.md"
_MODEL: Final = "background/model.md"
_SCHEMA: Final = "reference/native-schema.md"
_CLUSTER: Final = "reference/cluster-spec.md"
_ELASTIC: Final = "how-to/let-jobs-scale.md"
_HETERO: Final = "background/heterogeneous.md"
_TRUST: Final = "background/trust.md"
_REPLAYS: Final = "reference/replays.md"

ENTRIES: Final[tuple[GlossaryEntry, ...]] = (
    GlossaryEntry(
        "Assumption",
        "",
        "A value used because the file does not state it. Every result lists its assumptions.",
        _TRUST,
    ),
    GlossaryEntry(
        "Backfill",
        "",
        "Starting a later job in a gap without delaying the first of the queue. Requires"
        " run-time estimates.",
        _MODEL,
    ),
    GlossaryEntry(
        "Backtest",
        "check against the past",
        "A comparison of a simulated policy with the recorded schedule: how far it reproduces"
        " the recorded waits.",
        "how-to/check-against-the-past.md",
    ),
    GlossaryEntry(
        "Baseline",
        "",
        "The policy to which every difference on a page refers.",
        _METRICS,
    ),
    GlossaryEntry(
        "Checkpoint",
        "",
        "A saved state of a job. A failure loses the work since the last one.",
        _MODEL,
    ),
    GlossaryEntry(
        "Cluster",
        "",
        "The machines: groups of nodes with GPUs of one type each, cores, memory, racks and"
        " prices.",
        _CLUSTER,
    ),
    GlossaryEntry(
        "Completion time",
        "JCT",
        "Time from submission to finish, including waiting and pauses. A mean covers completed"
        " jobs only.",
        _METRICS,
    ),
    GlossaryEntry(
        "Elastic job",
        "malleable job",
        "A job that can run on more or fewer GPUs than requested, and be resized while it runs.",
        _ELASTIC,
    ),
    GlossaryEntry(
        "Expected range",
        "band",
        "Where a replay's result is expected, from the published figure or our trial program.",
        _REPLAYS,
    ),
    GlossaryEntry(
        "Fairness, finish-time",
        "rho",
        "JCT divided by the JCT in isolation on an equal part of the cluster. Above 1, isolation"
        " would have been faster.",
        _METRICS,
    ),
    GlossaryEntry(
        "Fragmentation",
        "",
        "Free GPUs scattered over nodes, so that a gang that needs them together cannot start.",
        _MODEL,
    ),
    GlossaryEntry(
        "Gang",
        "",
        "The GPUs of one job, which it needs all at once.",
        _MODEL,
    ),
    GlossaryEntry(
        "Goodput",
        "",
        "Useful progress per time: throughput without pauses, lost work and steps that do not"
        " improve the model.",
        _METRICS,
    ),
    GlossaryEntry(
        "GPU-hour",
        "GPU-second",
        "One GPU held for one hour.",
        _METRICS,
    ),
    GlossaryEntry(
        "GPUs busy",
        "utilization",
        "GPU time held divided by GPU time available, from the first to the last submission. It"
        " includes restarting GPUs.",
        _METRICS,
    ),
    GlossaryEntry(
        "Grant",
        "",
        "The GPUs that a job holds, by node. An elastic job's can differ from its request.",
        _MODEL,
    ),
    GlossaryEntry(
        "Head-of-line blocking",
        "",
        "The first job of the queue has no room, and no later job may pass it.",
        _MODEL,
    ),
    GlossaryEntry(
        "Heterogeneous cluster",
        "mixed GPUs",
        "A cluster with several GPU types, on which a job runs at different speeds.",
        _HETERO,
    ),
    GlossaryEntry(
        "Interval",
        "95 % interval",
        "The range of 95 % of the resampled values of a difference. A single run has none.",
        _METRICS,
    ),
    GlossaryEntry(
        "Job",
        "",
        "One submission, with its own id: GPUs, submission time and run time.",
        _SCHEMA,
    ),
    GlossaryEntry(
        "Load",
        "",
        "GPU time that the jobs need on the fastest GPU type, divided by the cluster's GPU time"
        " while jobs arrive. Queues form well below 1; above 1 they keep growing.",
        "background/trust.md",
    ),
    GlossaryEntry(
        "Makespan",
        "",
        "Time from the first submission to the last finish. One long job can determine it.",
        _METRICS,
    ),
    GlossaryEntry(
        "Node",
        "server, machine",
        "One machine with its GPUs, cores and memory.",
        _CLUSTER,
    ),
    GlossaryEntry(
        "Our reading",
        "",
        "Our choice where a paper leaves one open, or its full text was not available.",
        _TRUST,
    ),
    GlossaryEntry(
        "Overflow",
        "",
        "GPUs that the recorded schedule used but the described cluster lacks. They do not"
        " count as capacity.",
        _TRUST,
    ),
    GlossaryEntry(
        "Paired comparison",
        "",
        "Two policies compared job by job on the same trace and seed, over the jobs that both"
        " completed.",
        _METRICS,
    ),
    GlossaryEntry(
        "Parameter server",
        "",
        "A replica that holds the model while workers compute.",
        "background/cpu-and-gpu.md",
    ),
    GlossaryEntry(
        "Placement", "", "Which GPUs on which nodes a job gets, as opposed to when.", _MODEL
    ),
    GlossaryEntry(
        "Policy",
        "scheduler, allocator",
        "The rule that decides which jobs hold which GPUs at any time.",
        "how-to/add-an-allocator.md",
    ),
    GlossaryEntry(
        "Preemption",
        "",
        "Stopping a running job for another job. Its cost is an assumption, shown with the result.",
        _MODEL,
    ),
    GlossaryEntry(
        "Profile",
        "",
        "Measured speeds of a model by GPU type and number of GPUs.",
        "how-to/measured-profiles.md",
    ),
    GlossaryEntry(
        "Queueing delay",
        "",
        "Wait to start: time from submission to the first start, without time in the queue after"
        " a preemption.",
        _METRICS,
    ),
    GlossaryEntry(
        "Recorded schedule",
        "",
        "The start times and nodes in the trace. It can be compared like a policy.",
        _TRUST,
    ),
    GlossaryEntry(
        "Replay",
        "",
        "A repetition of a published comparison, with simulated and published figures.",
        _REPLAYS,
    ),
    GlossaryEntry(
        "Request",
        "demand",
        "The GPUs, cores and memory that a job asks for (`num_gpus`, `cpus`, `mem_gb`).",
        _SCHEMA,
    ),
    GlossaryEntry(
        "Restart cost",
        "overhead",
        "The pause when a job is stopped and started again, holding its GPUs without progress.",
        "reference/models/overheads.md",
    ),
    GlossaryEntry(
        "Run-time estimate",
        "prediction, estimator",
        "A policy's estimate of a job's run time: exact, with a chosen error, learned, or"
        " constant. The simulation uses the true run time.",
        "reference/models/estimates.md",
    ),
    GlossaryEntry(
        "Scenario",
        "",
        "All inputs of a result: jobs, cluster, policy, models, seed. Results are stored under"
        " a hash of it.",
        "reference/command-line.md",
    ),
    GlossaryEntry(
        "Seed",
        "",
        "The number that determines all random draws. The same seed gives the same run, to the"
        " byte.",
        _MODEL,
    ),
    GlossaryEntry(
        "Speed-up",
        "scaling",
        "How many times faster a job runs on more GPUs; usually less than the GPUs multiply.",
        _ELASTIC,
    ),
    GlossaryEntry(
        "Straggler",
        "",
        "A slow replica that delays the rest of its job.",
        "background/cpu-and-gpu.md",
    ),
    GlossaryEntry(
        "Tenant",
        "team",
        "An owner of jobs with a quota: a virtual cluster, account, partition, user or QOS.",
        "reference/command-line.md",
    ),
    GlossaryEntry(
        "Throughput",
        "",
        "Steps or samples per second of a job, or finished jobs per hour of a cluster.",
        "reference/models/measured.md",
    ),
    GlossaryEntry(
        "Trace",
        "",
        "The record of a cluster's jobs: submission time, request and run time of each.",
        _SCHEMA,
    ),
    GlossaryEntry(
        "Wait",
        "",
        "JCT minus the time holding GPUs, including time after a preemption.",
        _METRICS,
    ),
    GlossaryEntry(
        "What-if",
        "",
        "The same jobs under another policy or on other machines. Users' behavior stays as"
        " recorded, although in reality it would change.",
        _MODEL,
    ),
    GlossaryEntry(
        "Work",
        "",
        "The recorded run time on the requested GPUs. On faster or more GPUs the same work"
        " takes less time.",
        _MODEL,
    ),
    GlossaryEntry(
        "Zoom window",
        "",
        "The time range chosen in a chart. Charts and tables of the page then show this range.",
        "tutorial/first-comparison.md",
    ),
)


def find_terms(query: str) -> tuple[GlossaryEntry, ...]:
    """Return entries that contain a text, by term; matches at a word start come first.

    Ignores case. An empty text returns all entries.
    """
    text = " ".join(query.lower().split())
    matches = [one for one in ENTRIES if text in f"{one.term} {one.also} {one.text}".lower()]
    return tuple(
        sorted(
            matches,
            key=lambda one: (
                not re.search(rf"\b{re.escape(text)}", f"{one.term}, {one.also}".lower()),
                one.term.lower(),
            ),
        )
    )


def markdown() -> str:
    """Return the content of docs/reference/glossary.md: all entries as a Markdown list."""
    rows = [
        f"- **[{one.term}](../{one.page})**{f' ({one.also})' if one.also else ''}: {one.text}"
        for one in find_terms("")
    ]
    head = "# Glossary\n\nThe Learn page searches this list.\n\n"
    return head + "\n".join(rows) + "\n"

"""Words of the field as this project uses them, one or two sentences each: the glossary of the app and of the documentation."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Entry(NamedTuple):
    """One word.

    Parameters
    ----------
    term, also : str
        The word, and others for the same; `also` may be "".
    text : str
        What it means here.
    page : str
        Page of the documentation that says more, relative to docs/.
    """

    term: str
    also: str
    text: str
    page: str


_METRICS: Final = "reference/metrics.md"
_MODEL: Final = "background/model.md"
_MODELS: Final = "reference/models.md"
_SCHEMA: Final = "reference/native-schema.md"
_CLUSTER: Final = "reference/cluster-spec.md"
_ELASTIC: Final = "how-to/let-jobs-scale.md"
_HETERO: Final = "background/heterogeneous.md"
_TRUST: Final = "background/trust.md"
_REPLAYS: Final = "reference/replays.md"

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry("Backfill", "", "Letting a later job start in a gap that does not delay the first of the queue. It needs to know how long jobs take.", _MODEL),
    Entry("Baseline", "", "The policy that the others are compared with. Every difference on a page is to it.", _METRICS),
    Entry(
        "Belief",
        "prediction",
        "What a policy is told of run times. It can be exact, wrong by a chosen amount, learned, or nothing; the run itself uses the truth.",
        _MODELS,
    ),
    Entry("Checkpoint", "", "A saved state of a job. What was done since the last one is done again after a failure.", _MODEL),
    Entry("Cluster", "", "The machines: groups of nodes with GPUs of one type each, cores, memory, racks and prices.", _CLUSTER),
    Entry(
        "Completion time",
        "JCT",
        "From submission to finish, waiting and pauses included. A mean counts completed jobs only, the others stand beside it.",
        _METRICS,
    ),
    Entry("Elastic job", "malleable job", "A job that can run on more or fewer GPUs than it asked for, and be resized while it runs.", _ELASTIC),
    Entry(
        "Fairness, finish-time",
        "rho",
        "JCT over that in isolation with an equal part of the cluster; above 1 the job would have been better off alone.",
        _METRICS,
    ),
    Entry("Fragmentation", "", "GPUs that are free but lie in pieces on several nodes, so that a gang that needs them together cannot start.", _MODEL),
    Entry("Gang", "", "The GPUs of one job, which it needs all at once. Half a gang is of no use.", _MODEL),
    Entry(
        "Goodput",
        "",
        "Useful progress per time: what is left of throughput without pauses, lost work and steps that teach the model nothing.",
        "background/elastic.md",
    ),
    Entry("GPU-hour", "GPU-second", "One GPU held for an hour. Eight GPUs for half an hour are four.", _METRICS),
    Entry("Head-of-line blocking", "", "The first job of the queue has no room, and nobody may pass it although others would fit.", _MODEL),
    Entry("Heterogeneous cluster", "mixed GPUs", "A cluster with several types of GPU, on which the same job runs at different speeds.", _HETERO),
    Entry(
        "Interval", "95 % interval", "Where a difference lies in 95 % of resamples of the repeats. One run on one trace has none, and none is shown.", _METRICS
    ),
    Entry("Job", "", "One submission: so many GPUs, from when, for how long. Jobs of one user or name are told apart by their id.", _SCHEMA),
    Entry(
        "Load",
        "",
        "GPU-hours asked for, at the speed of the fastest type there, over those of the cluster while jobs arrive. "
        "Queues form well below 1; above it they grow.",
        "background/trust.md",
    ),
    Entry("Makespan", "", "From the first submission to the last finish. One long job can set it alone.", _METRICS),
    Entry("Node", "server, machine", "One machine with its GPUs, cores and memory. A gang on one node needs no network.", _CLUSTER),
    Entry("Our reading", "", "Where a paper leaves a choice open, or was not read in full, the choice is ours and is marked so.", _TRUST),
    Entry("Overflow", "", "GPUs that a recorded schedule held and the described cluster does not have. They count in no capacity.", _TRUST),
    Entry("Paired comparison", "", "Two policies compared job by job on the same trace and seed, over the jobs that both completed.", _METRICS),
    Entry(
        "Parameter server",
        "",
        "A replica that holds the model while workers compute. Jobs with such servers scale with the number of both.",
        "background/cpu-and-gpu.md",
    ),
    Entry("Placement", "", "Which GPUs on which nodes a job gets, as opposed to when.", _MODEL),
    Entry("Policy", "scheduler, allocator", "What decides at each instant which job holds which GPUs.", "how-to/add-an-allocator.md"),
    Entry("Preemption", "", "Stopping a running job for another one. What it costs is an assumption, which stands beside the result.", _MODEL),
    Entry("Profile", "", "Measured speeds of a model on GPU types and sizes, instead of assumed ones.", "how-to/measured-profiles.md"),
    Entry("Queueing delay", "", "From submission to the first start. Time in the queue after a preemption is not in it; see wait.", _METRICS),
    Entry("Replay", "", "The repetition of a published comparison: its figures beside the simulated ones.", _REPLAYS),
    Entry("Restart cost", "overhead", "The pause when a job stops and starts again, during which it holds its GPUs without progress.", _MODELS),
    Entry(
        "Scenario",
        "",
        "Everything a result depends on: jobs, cluster, policies, models, seed. Its hash is the id under which results are kept.",
        "reference/command-line.md",
    ),
    Entry("Seed", "", "The number from which everything random is drawn. The same seed gives the same run, to the byte.", _MODELS),
    Entry("Speed-up", "scaling", "How many times faster a job runs on more GPUs. Twice the GPUs are mostly less than twice as fast.", _ELASTIC),
    Entry("Straggler", "", "A slow replica that holds up the others of its job.", "background/cpu-and-gpu.md"),
    Entry("Throughput", "", "Steps or samples per second of one job, or finished jobs per hour of a cluster; the page says which.", _MODELS),
    Entry("Trace", "", "The record of the jobs of a cluster: when each came, what it asked for, how long it ran.", _SCHEMA),
    Entry(
        "Utilisation",
        "GPUs busy",
        "GPU time held over GPU time there is, from the first to the last submission. Busy GPUs are not always useful ones.",
        _METRICS,
    ),
    Entry("Wait", "", "JCT less the time holding GPUs. It counts time after a preemption too, and is what a user feels.", _METRICS),
    Entry("What-if", "", "The same jobs under other policies or on other machines. Users' behaviour stays as recorded, which in life it would not.", _MODEL),
    Entry("Work", "", "Recorded run time on the GPUs that were asked for. A faster GPU or more of them get through it sooner.", _MODEL),
)


def find(wanted: str) -> tuple[Entry, ...]:
    """Return the words that contain a text, those first whose name begins with it; "" = all, in order of the alphabet."""
    text = " ".join(wanted.lower().split())
    found = [one for one in ENTRIES if text in f"{one.term} {one.also} {one.text}".lower()]
    return tuple(sorted(found, key=lambda one: (not re.search(rf"\b{re.escape(text)}", f"{one.term}, {one.also}".lower()), one.term.lower())))


def markdown() -> str:
    """Return the page docs/reference/glossary.md."""
    rows = [f"| **{one.term}**{f' ({one.also})' if one.also else ''} | {one.text} [More](../{one.page}) |" for one in find("")]
    head = "# Glossary\n\nWords as this project uses them. The Learn page has the same list, with a search.\n\n| word | meaning |\n|---|---|\n"
    return head + "\n".join(rows) + "\n"

"""The parts of a report in words and tables: the comparison, how far to believe it, what was asked, where it comes from, and how to repeat it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from charts import visible
from report.pieces import described, folded, listed, paragraph, section, table, text, verbatim
from sim.params import Spec
from trainyard import text as readable
from trainyard.clusters import machines
from trainyard.results.headline import GOALS
from trainyard.results.metrics_shown import METRICS, SLOWER, Metric
from trainyard.results.outcomes import Report, Shown
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.text import plural
from trainyard.traces.samples import SAMPLES
from trainyard.traces.sources import load_source

FILE: Final = "trainyard-scenario.json"
_ALL: Final = (*METRICS, SLOWER)
_READY: Final = ("sample", "made")
_STOPS: Final = {"drained": "when all jobs are settled", "horizon": "at the horizon", "measured": "when all measured jobs are settled"}

LIMITS: Final = (
    "A run replays the recorded submissions; users do not react to waiting, as they would in life.",
    "A job is as much work as it took when it was recorded; a job that failed after three hours then runs for three hours of work here.",
    "One GPU is never shared between jobs; fractions in a trace are rounded up.",
    "Jobs do not slow each other down on the network or on storage.",
    "More workers or other batches never change how much work a job is, so nothing is said about accuracy.",
    "Jobs do not depend on each other.",
    "Costs of restarts, failures and wrong guesses of run times count only as far as the scenario names them.",
)


def comparison(said: Report, swatches: Mapping[str, str]) -> str:
    """Return the table of all metrics, differences against the baseline with them, and how jobs ended.

    Parameters
    ----------
    said : Report
        What the runs say.
    swatches : mapping of str
        Title -> HTML that shows how the policy is drawn.
    """
    cells: dict[tuple[str, str], Mapping[Any, Any]] = {(row["label"], row["metric"]): row for row in said.table.to_dict("records")}
    metrics = [metric for metric in _ALL if any((label, metric.name) in cells for label in said.labels)]
    head = ["Metric", *(f"{label} (baseline)" if label == said.baseline else label for label in said.labels)]
    rows = [[_metric(metric), *(_value(cells.get((label, metric.name)), metric) for label in said.labels)] for metric in metrics]
    sure = "Ranges are 95 % intervals over the repeats." if said.table["low"].notna().any() else said.certainty
    compared = said.baseline and said.table["change"].notna().any()
    against = f"Differences against {said.baseline}, over the jobs completed under both. {sure} " if compared else ""
    keys = " ".join(f'<span class="key">{swatch}{text(label)}</span>' for label, swatch in swatches.items())
    barred = ", ".join(str(label) for label in said.table.loc[said.table["barred"], "label"].unique())
    besides = f"; {barred} not counted" if barred else ""
    notes = paragraph(f"{against}Underlined: the lowest or highest value where they differ{besides}." if len(said.labels) > 1 else "", "note") + paragraph(
        said.not_common, "note"
    )
    return section("Policies side by side", f'<p class="note">{keys}</p>{table(head, rows, "numbers")}{notes}') + section("How jobs ended", _ends(said))


def _metric(metric: Metric) -> str:
    goal = f" ({metric.better} is better)" if metric.better else ""
    return f'<span title="{text(metric.help)}">{text(metric.title)}</span><small>{text(goal)}</small>'


def _value(row: Mapping[Any, Any] | None, metric: Metric) -> str:
    if row is None:
        return readable.MISSING
    value = text(readable.BY_UNIT[metric.unit](float(row["value"])))
    shown = f"<u>{value}</u>" if row["best"] else value
    change = readable.change(float(row["change"]))
    if change and max(abs(row["low"]), abs(row["high"])) >= readable.SEEN:  # not of NaN
        change += f" ({readable.change(float(row['low']))} to {readable.change(float(row['high']))})"
    if change and row["verdict"]:
        change = f"{'▲' if row['change'] > 0 else '▼'} {change} {row['verdict']}"
    return f'{shown}<small class="{row["verdict"]}">{text(change)}</small>'


def _ends(said: Report) -> str:
    names = ("jobs", "completed", "failed", "impossible", "refused", "unfinished")
    rows = [[text(row["label"]), *(readable.count(row[name]) for name in names), text(row["why"])] for row in said.counts.to_dict("records")]
    head = ["Policy", *(name.capitalize() for name in names), "Why failed"]
    if not said.counts["why"].any():
        head, rows = head[:-1], [row[:-1] for row in rows]
    return table(head, rows, "numbers") + paragraph(
        "Over all repeats. Only completed jobs have a JCT (time from submission to finish), so the means are theirs.", "note"
    )


def belief(said: Report) -> str:
    """Return how far the results can be believed: against the recording, remarks and assumptions."""
    if said.trust is None:
        recorded = paragraph(said.untold)
    else:
        rows = [
            [text(row["size"]), readable.count(row["jobs"]), *(readable.time(row[name]) for name in ("recorded_s", "median_s", "p95_s"))]
            for row in said.trust.by_size.to_dict("records")
        ]
        head = ("GPUs", "Jobs", "Median recorded wait", "Median error", "95th percentile of the error")
        recorded = paragraph(said.trust.sentence()) + table(head, rows, "numbers")
    remarks = [f"{label}: {remark}" for label, remark in said.remarks.items()]
    return section("Against the recorded history", recorded + paragraph(said.overflow)) + section(
        "Remarks and assumptions", listed([*remarks, *said.assumptions])
    )


def policies(shown: Shown) -> str:
    """Return what each policy does, what it cannot, and where our reading of a paper comes in."""
    told = []
    for title, spec in zip(shown.titles, shown.study.allocators, strict=True):
        card = catalog.allocator(spec).card
        if card is not None:
            told.append(
                f"<h3>{text(title)}</h3>{paragraph(f'{card.what} {card.cost}')}{paragraph(card.limits)}{paragraph(f'{card.source}; {card.certainty}.', 'note')}"
            )
    return section("Policies", "".join(told))


def account(shown: Shown, store: Store) -> str:
    """Return what was read of the trace, and what was left out."""
    source = load_source(shown.study.base.trace, store)
    found = source.account
    if found.get("format") in _READY or not found:
        return section("Trace", described((*_jobs(shown, source.trace.name), ("Read", "complete: nothing was left out" if found else "not recorded"))))
    counts = f"{found['used']:,} used + {found['dropped']:,} left out = {found['read']:,} read; {found['altered']:,} altered"
    rows = [[text(item["action"]), text(item["reason"]), readable.count(item["rows"])] for item in found["reasons"]]
    reasons = table(("What happened", "Why", "Rows"), rows) if rows else ""
    file = (("File", str(found.get("file", ""))), ("Format", str(found.get("title", found["format"]))), ("Rows", counts))
    about = described((*_jobs(shown, source.trace.name), *file))
    return section("Trace", about + reasons + listed([*found["warnings"], *(f"Assumed: {guess}" for guess in found["guesses"])]))


def _jobs(shown: Shown, name: str) -> tuple[tuple[str, str], ...]:
    spec = shown.study.base.trace
    kind, _, sample = spec.source.partition(":")
    title = SAMPLES[sample].title if kind == "sample" and sample in SAMPLES else name
    return (("Name", title), ("Source", spec.source), ("Taken", _taken(spec)))


def _taken(spec: TraceSpec) -> str:
    """Return what of a trace was run, and what was changed in it."""
    cut = spec.from_s > 0 or math.isfinite(spec.to_s)
    told = [
        (cut, f"jobs submitted from {readable.time(spec.from_s)} to {readable.time(spec.to_s) if math.isfinite(spec.to_s) else 'the end'}"),
        (spec.load != 1.0, f"load × {spec.load:g}{' by the number of jobs' if spec.load_by == 'jobs' else ''}"),
        (spec.every_user > 1, f"of {spec.every_user:,} users one"),
        (spec.sample > 0, f"{plural(spec.sample, 'job')} drawn at random (seed {spec.sample_seed})"),
        (spec.anonymise, "users renamed"),
    ]
    return ", ".join(one for there, one in told if there) or "all jobs as recorded"


def _role(shown: Shown, at: int) -> str:
    if at == shown.baseline:
        return " (baseline)"
    return " (baseline chosen, cannot run here)" if at == shown.study.baseline else ""


def scenario(shown: Shown) -> str:
    """Return what was asked: in words, and as the file that repeats it."""
    study, base = shown.study, shown.study.base
    totals = machines.totals(base.cluster)
    seeds = f"{base.seed}" if study.repeats == 1 else f"{base.seed} to {base.seed + study.repeats - 1}, one per repeat"
    pairs = (
        ("Cluster", base.cluster.name),
        ("Machines", f"{'; '.join(totals.by_type)} ({plural(totals.nodes, 'node')}, {plural(totals.gpus, 'GPU')})"),
        ("Policies", "; ".join(f"{title}{_role(shown, at)}" for at, title in enumerate(shown.titles))),
        ("Performance model", _spec(base.perf)),
        ("What policies are told of run times", _spec(base.belief)),
        ("Overheads", _values(base.overheads) or "none"),
        ("Failures", _values(base.faults) or "none"),
        ("Seed", seeds),
        ("Measured", _measured(base)),
        ("Horizon", readable.time(base.horizon_s) if math.isfinite(base.horizon_s) else ""),
        ("Ends", _STOPS[base.stop]),
    )
    return section("Scenario", described(pairs) + folded("The scenario as a file", verbatim(document(shown))))


def _measured(base: Scenario) -> str:
    limits = base.to_json()["measure"].items()
    return ", ".join(f"{name.replace('_', ' ')} = {value:g}" for name, value in limits if value) or "all jobs"


def _spec(spec: Spec) -> str:
    values = _values(spec)
    return f"{spec.name}: {values}" if values else spec.name


def _values(spec: Spec) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} = {value:g}" if isinstance(value, float) else f"{name.replace('_', ' ')} = {value}" for name, value in spec.params
    )


def document(shown: Shown) -> str:
    """Return the study as the JSON that Save writes; characters beyond ASCII are written as numbers, so that none is invisible."""
    return json.dumps(shown.study.to_json(), indent=2, sort_keys=True)


def provenance(shown: Shown, created: datetime) -> str:
    """Return where the numbers come from: versions, hashes of every run, and when the report was made."""
    entries = [(shown.titles[at], turn, entry) for at in shown.places for turn, entry in enumerate(shown.entries[at])]
    seed = shown.study.base.seed
    rows = [
        [text(title), str(seed + turn), f"<code>{text(entry.key)}</code>", f"<code>{text(entry.provenance['digest'])}</code>"] for title, turn, entry in entries
    ]
    kinds = list(dict.fromkeys(_versions(entry.provenance["versions"]) for _, _, entry in entries))
    about = described((("Report made", f"{created:%Y-%m-%d %H:%M:%S %Z}".strip()), *(("Computed with", kind) for kind in kinds)))
    hashes = table(("Run", "Seed", "Key of the scenario", "Digest of the result"), rows)
    return section("Provenance", about + folded("Hashes of every run", hashes + paragraph("Equal keys and versions give equal digests.", "note")))


def _versions(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in found.items())


def repeat(shown: Shown) -> str:
    """Return how to get the same numbers again."""
    source = shown.study.base.trace.source
    own = "" if source.startswith(("sample:", "made:")) else " --trace YOUR_FILE"
    lines = f"python -m trainyard run --scenario {FILE}{own}\npython -m trainyard report --scenario {FILE}{own}"
    note = "The trace is not in the scenario: name its file." if own else ""
    button = '<button type="button" data-save="scenario" hidden>Save the scenario</button>'
    return section("Repeat it", f"<p>Save the scenario as {FILE}, then:</p>{button}{verbatim(lines)}{paragraph(note, 'note')}")


def limits() -> str:
    """Return what the model leaves out."""
    return section("Limits of the model", listed(LIMITS))


def goals(said: Report) -> str:
    """Return the sentences on the other goals."""
    others = [f"{GOALS[goal]}: {told.text}" for goal, told in said.headlines.items() if told.text != said.headline]
    return folded("The same question for other goals", listed([f"{one[0].upper()}{one[1:]}" for one in others])) if others else ""


def limits_of(said: Report) -> str:
    """Return what else limits the headline, and what can be done about it."""
    return "".join(paragraph(line) for line in said.told.lines()[1:])


def title(said: Report) -> str:
    """Return what the report is called, as plain text."""
    return visible(said.headline, 200)

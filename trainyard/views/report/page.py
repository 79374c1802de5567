"""HTML file of a report: text, tables, figures with data, and the chart library inside."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from plotly.offline import get_plotlyjs

from sim.errors import ParameterError
from sim.params import Spec
from trainyard import formatting as readable
from trainyard.clusters import machines
from trainyard.formatting import plural
from trainyard.results.headline import GOALS
from trainyard.results.outcomes import ComparisonReport, StudyResults
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.traces.samples import SAMPLES
from trainyard.traces.sampling import HIDDEN_NAME
from trainyard.traces.sources import load_source, row_counts_text
from trainyard.views import ledger
from trainyard.views.charts import visible
from trainyard.views.charts.theme import PRINTED, RECOLOURED
from trainyard.views.compared_runs import ComparedRuns, compare_runs
from trainyard.views.figure_view import FigureView
from trainyard.views.markup import (
    html_contents,
    html_descriptions,
    html_details,
    html_frame,
    html_list,
    paragraph,
    section,
    table,
    text,
    verbatim,
)
from trainyard.views.metric_table import TableStyle, accuracy_table, full_table, swatch
from trainyard.views.registry import views

_HERE: Final = Path(__file__).parent
_FORMATS: Final = ("png", "svg")
_MAIN: Final = ("queue", "jct_cdf")
"""Figures before the appendix."""
_FILE: Final = "trainyard-scenario.json"
_READY: Final = ("sample", "made")
_STOPS: Final = {
    "drained": "when all jobs are settled",
    "horizon": "at the horizon",
    "measured": "when all measured jobs are settled",
}

_LIMITS: Final = (
    "A run replays the recorded submissions; users do not react to waiting, as they would in life.",
    (
        "A job is as much work as it took when it was recorded; a job that failed after three hours"
        " then runs for three hours of work here."
    ),
    "One GPU is never shared between jobs; fractions in a trace are rounded up.",
    "Jobs do not slow each other down on the network or on storage.",
    (
        "More workers or other batches never change how much work a job is, so accuracy is not"
        " simulated."
    ),
    "Jobs do not depend on each other.",
    (
        "Costs of restarts, failures and wrong guesses of run times count only as far as the"
        " scenario names them."
    ),
)


def offline_html(runs: StudyResults, store: Store, *, created: datetime) -> str:
    """Return a self-contained HTML report of the complete runs of a study.

    Parameters
    ----------
    runs : StudyResults
        Those of policies that are not complete are left out.
    store : Store
        Where they are kept, with the trace.
    created : datetime
        What is written as the time of making; with the same time, equal results give equal bytes.

    Raises
    ------
    TrainyardError
        If no policy is complete, or a stored result was deleted.
    """
    compared = compare_runs(runs, store)
    if compared is None:
        raise ParameterError(
            "No policy of this scenario is complete, so there is nothing to report. Run it first."
        )
    report, figures = compared.report, views(compared)
    missing = [
        title
        for at, title in enumerate(runs.titles)
        if not runs.complete(at) and title not in report.skipped
    ]
    assumed = f"Assumed: {report.assumed}" if report.assumed else ""
    skipped = [f"{title} is skipped. {why}" for title, why in report.skipped.items()]
    main = {one.name: _figure(one) for one in figures if one.name in _MAIN}
    others = "".join(_figure(one) for one in figures if one.name not in _MAIN)
    sections = [
        section("Policies side by side", _ledger(compared)),
        section("Over time and by job", "".join(main.values())),
        _accuracy(report),
        _scenario(runs),
        _repeat(runs),
        _limits(),
    ]
    appendix = [
        section("How jobs ended", _ends(report)),
        section("All metrics", full_table(report.table, _table_style(compared))),
        section("More figures", others),
        _policies(runs),
        _account(runs, store),
        _provenance(runs, created),
    ]
    origin = f"{compared.source} · {created:%Y-%m-%d}"
    parts = [
        f"<header>{paragraph(f'Trainyard · {origin}', 'note')}<h1>{text(report.headline)}</h1>",
        f"{_limits_of(report)}{paragraph(report.facts)}{paragraph(assumed, 'note')}",
        *(paragraph(sentence, "note") for sentence in skipped),
        paragraph(
            f"Without a result, so not shown: {', '.join(missing)}." if missing else "", "note"
        ),
        f"{_goals(report)}</header>",
        html_contents([*sections, *appendix]),
        *sections,
        html_details("Appendix: all metrics, figures, policies and hashes", "".join(appendix)),
    ]
    return _file(_title(report), "\n".join(parts), figures, _document(runs))


def _figure(one: FigureView) -> str:
    """Return a figure as HTML: placeholder, caption, note, buttons to save it, and its data."""
    alt = text(one.alt)
    buttons = "".join(
        f'<button type="button" data-plot="{one.name}" data-format="{form}" aria-label="Save this'
        f' chart as {form.upper()}" hidden>{form.upper()}</button>'
        for form in _FORMATS
    )
    height = int(one.figure.layout.height)
    plot = (
        f'<div class="plot" id="{one.name}" role="img" aria-label="{alt}" style="min-height:'
        f' {height}px"></div>'
    )
    note = paragraph(one.note, "note")
    data = html_details("Data", html_frame(one.data())) if one.data is not None else ""
    return (
        '<figure role="figure"'
        f' aria-label="{alt}">{plot}<figcaption>{alt}</figcaption>{note}{buttons}{data}</figure>'
    )


def _file(title: str, body: str, figures: Sequence[FigureView], scenario: str) -> str:
    """Return the HTML file: style, body, scenario and figures as JSON, and two scripts."""
    style, script, library = (
        (_HERE / "page.css").read_text("utf-8"),
        (_HERE / "page.js").read_text("utf-8"),
        get_plotlyjs(),
    )
    # Only these two scripts can run, and nothing can be loaded: untrusted text stays inert.
    scripts = " ".join(f"'sha256-{_sha256(code)}'" for code in (library, script))
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:;"
        " font-src data:; base-uri 'none'; form-action 'none'"
    )
    data = {one.name: _plain(one.figure) for one in figures}
    palette = {"dark": dict(RECOLOURED), "dashes": dict(PRINTED)}
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
<script type="application/json" id="scenario">{_inert(scenario)}</script>
<script type="application/json" id="palette">{_inert(json.dumps(palette, sort_keys=True))}</script>
<script type="application/json" id="figures">{_inert(json.dumps(data, sort_keys=True, separators=(",", ":")))}</script>
<script>{library}</script>
<script>{script}</script>
</body>
</html>
"""  # noqa: E501


def _plain(figure: Any) -> Any:
    """Return a figure as plain JSON values, without Plotly's template."""
    values = json.loads(figure.to_json(engine="json"))
    values["layout"].pop("template", None)
    return values


def _inert(document: str) -> str:
    """Return JSON escaped so that it cannot close its script block."""
    return document.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sha256(code: str) -> str:
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


def _table_style(compared: ComparedRuns) -> TableStyle:
    """Return the style of tables: color and printed dash of every policy, and the baseline."""
    light, dark = compared.colours(), compared.colours(dark=True)
    looks = {
        title: (f"light-dark({light[title]}, {dark[title]})", PRINTED.get(light[title], "solid"))
        for title in compared.runs.titles
    }
    return TableStyle(looks, compared.baseline)


def _ledger(compared: ComparedRuns) -> str:
    """Return the ledger as an HTML table with the default columns, and notes."""
    looks = _table_style(compared).policies
    report, cells = compared.report, ledger.by_place(compared.report.table)
    metrics = ledger.columns(report.table)
    rows = []
    for title in report.labels:
        row_cells = [ledger.cell(cells, title, metric, compared.baseline) for metric in metrics]
        mark = " (baseline)" if title == compared.baseline else ""
        rows.append(
            [
                f"{swatch(*looks[title])}{text(title + mark)}",
                *(
                    f'{text(one.text)} <span class="diff {one.verdict}">{text(one.change)}</span>'
                    for one in row_cells
                ),
            ]
        )
    note = f"Differences to {compared.baseline}; ≈ = about the same." if compared.baseline else ""
    head = ["Policy", *(metric.title for metric in metrics)]
    notes = (note, report.certainty, report.not_common)
    return table(head, rows, "numbers ledger") + "".join(paragraph(one, "note") for one in notes)


def _ends(report: ComparisonReport) -> str:
    """Return the table of jobs by outcome and policy, with causes of failures if any."""
    names = ("jobs", "completed", "failed", "impossible", "refused", "unfinished")
    rows = [
        [text(row["label"]), *(readable.count(row[name]) for name in names), text(row["why"])]
        for row in report.counts.to_dict("records")
    ]
    head = ["Policy", *(name.capitalize() for name in names), "Why failed"]
    if not report.counts["why"].any():
        head, rows = head[:-1], [row[:-1] for row in rows]
    return table(head, rows, "numbers") + paragraph(
        "Over all repeats. Impossible: larger than the cluster. Refused: rejected by the policy."
        " Unfinished: waiting or running at the end. Only completed jobs have a JCT (time"
        " from submission to finish), so the means are theirs.",
        "note",
    )


def _accuracy(report: ComparisonReport) -> str:
    """Return two sections: recorded against simulated waits, and remarks with assumptions."""
    if report.trust is None:
        recorded = paragraph(report.untold)
    else:
        recorded = paragraph(report.trust.sentence()) + html_frame(accuracy_table(report.trust))
    remarks = [f"{label}: {remark}" for label, remark in report.remarks.items()]
    return section("Against the recorded history", recorded + paragraph(report.overflow)) + section(
        "Remarks and assumptions", html_list([*remarks, *report.assumptions])
    )


def _policies(runs: StudyResults) -> str:
    """Return the section with the card of each policy: behavior, limits and source."""
    cards = []
    for title, spec in zip(runs.titles, runs.study.allocators, strict=True):
        card = catalog.allocator(spec).card
        if card is not None:
            cards += [
                f"<h3>{text(title)}</h3>",
                paragraph(f"{card.what} {card.cost}"),
                paragraph(card.limits),
                paragraph(f"{card.source}; {card.certainty}.", "note"),
            ]
    return section("Policies", "".join(cards))


def _account(runs: StudyResults, store: Store) -> str:
    """Return the section on the trace: its source, rows read and left out, and why.

    For anonymized traces, without the file name and texts from the file.
    """
    source = load_source(runs.study.base.trace, store)
    account = source.account
    if account.get("format") in _READY or not account:
        return section(
            "Trace",
            html_descriptions(
                (
                    *_trace_facts(runs, source.trace.name),
                    ("Read", "complete: nothing was left out" if account else "not recorded"),
                )
            ),
        )
    counts = f"{row_counts_text(account)}; {account['altered']:,} altered"
    rows = [
        [text(item["action"]), text(item["reason"]), readable.count(item["rows"])]
        for item in account["reasons"]
    ]
    reasons = table(("What happened", "Why", "Rows"), rows) if rows else ""
    file = (
        ("File", str(account.get("file", ""))),
        ("Format", str(account.get("title", account["format"]))),
        ("Rows", counts),
    )
    if runs.study.base.trace.anonymise:
        # File name and cell contents would reveal the origin of the jobs.
        return section(
            "Trace", html_descriptions((*_trace_facts(runs, HIDDEN_NAME), *file[1:])) + reasons
        )
    about = html_descriptions((*_trace_facts(runs, source.trace.name), *file))
    return section(
        "Trace",
        about
        + reasons
        + html_list([*account["warnings"], *(f"Assumed: {guess}" for guess in account["guesses"])]),
    )


def _trace_facts(runs: StudyResults, name: str) -> tuple[tuple[str, str], ...]:
    """Return three (label, text) pairs: name, source and selection of the trace.

    A bundled sample has its title in place of `name`.
    """
    spec = runs.study.base.trace
    kind, _, sample = spec.source.partition(":")
    title = SAMPLES[sample].title if kind == "sample" and sample in SAMPLES else name
    return (("Name", title), ("Source", spec.source), ("Taken", _selection_text(spec)))


def _selection_text(spec: TraceSpec) -> str:
    """Return the selected part of a trace and its changes as text, or "all jobs as recorded"."""
    cut = spec.from_s > 0 or math.isfinite(spec.to_s)
    changes = [
        (
            cut,
            (
                f"jobs submitted from {readable.time(spec.from_s)} to"
                f" {readable.time(spec.to_s) if math.isfinite(spec.to_s) else 'the end'}"
            ),
        ),
        (
            spec.load != 1.0,
            f"load × {spec.load:g}{' by the number of jobs' if spec.load_by == 'jobs' else ''}",
        ),
        (spec.every_user > 1, f"of {spec.every_user:,} users one"),
        (
            spec.sample > 0,
            f"{plural(spec.sample, 'job')} drawn at random (seed {spec.sample_seed})",
        ),
        (spec.anonymise, "names and ids replaced by numbers"),
    ]
    return ", ".join(one for applies, one in changes if applies) or "all jobs as recorded"


def _role(runs: StudyResults, at: int) -> str:
    """Return " (baseline)" after a policy's title, a longer text if it cannot run, or ""."""
    if at == runs.baseline:
        return " (baseline)"
    return " (baseline chosen, cannot run here)" if at == runs.study.baseline else ""


def _scenario(runs: StudyResults) -> str:
    """Return the section on the scenario: its settings as text, and as a file."""
    study, base = runs.study, runs.study.base
    totals = machines.cluster_totals(base.cluster)
    seeds = (
        f"{base.seed}"
        if study.repeats == 1
        else f"{base.seed} to {base.seed + study.repeats - 1}, one per repeat"
    )
    pairs = (
        ("Cluster", base.cluster.name),
        (
            "Machines",
            (
                f"{'; '.join(totals.groups)} ({plural(totals.nodes, 'node')},"
                f" {plural(totals.gpus, 'GPU')})"
            ),
        ),
        (
            "Policies",
            "; ".join(f"{title}{_role(runs, at)}" for at, title in enumerate(runs.titles)),
        ),
        ("Performance model", _spec(catalog.model_title(base.perf), base.perf)),
        ("Run-time estimates", _spec(base.estimator.name.replace("_", " "), base.estimator)),
        ("Restart cost", catalog.describe_values("overheads", base.overheads) or "none"),
        ("Failures", catalog.describe_values("faults", base.faults) or "none"),
        ("Seed", seeds),
        ("Measured", _measured_text(base)),
        ("Horizon", readable.time(base.horizon_s) if math.isfinite(base.horizon_s) else ""),
        ("Ends", _STOPS[base.stop]),
    )
    return section(
        "Scenario",
        html_descriptions(pairs)
        + html_details("The scenario as a file", verbatim(_document(runs))),
    )


def _measured_text(base: Scenario) -> str:
    """Return the limits of the measured jobs as text; "all jobs" without limits."""
    limits = base.to_json()["measure"].items()
    return (
        ", ".join(f"{name.replace('_', ' ')} = {value:g}" for name, value in limits if value)
        or "all jobs"
    )


def _spec(title: str, spec: Spec) -> str:
    """Return a title, followed by the parameters that are set in the choice, if any."""
    values = catalog.describe_values(spec.name, spec)
    return f"{title}: {values}" if values else title


def _document(runs: StudyResults) -> str:
    """Return the study as ASCII JSON, as Save writes it."""
    return json.dumps(runs.study.to_json(), indent=2, sort_keys=True)


def _provenance(runs: StudyResults, created: datetime) -> str:
    """Return the section on provenance: time, versions, and hashes of all runs."""
    entries = [
        (runs.titles[at], turn, entry)
        for at in runs.places
        for turn, entry in enumerate(runs.entries[at])
    ]
    seed = runs.study.base.seed
    rows = [
        [
            text(title),
            str(seed + turn),
            f"<code>{text(entry.key)}</code>",
            f"<code>{text(entry.provenance['digest'])}</code>",
        ]
        for title, turn, entry in entries
    ]
    kinds = list(dict.fromkeys(_versions(entry.provenance["versions"]) for _, _, entry in entries))
    about = html_descriptions(
        (
            ("Report made", f"{created:%Y-%m-%d %H:%M:%S %Z}".strip()),
            *(("Computed with", kind) for kind in kinds),
        )
    )
    hashes = table(("Run", "Seed", "Key of the scenario", "Digest of the result"), rows)
    return section(
        "Provenance",
        about
        + html_details(
            "Hashes of every run",
            hashes + paragraph("Equal keys and versions give equal digests.", "note"),
        ),
    )


def _versions(versions: Mapping[str, str]) -> str:
    """Return "name version" texts, joined by commas."""
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _repeat(runs: StudyResults) -> str:
    """Return the section with the commands that reproduce the numbers."""
    source = runs.study.base.trace.source
    own = "" if source.startswith(("sample:", "made:")) else " --trace YOUR_FILE"
    lines = (
        f"python -m trainyard run --scenario {_FILE}{own}\npython -m trainyard report --scenario"
        f" {_FILE}{own}"
    )
    note = "The trace is not in the scenario: name its file." if own else ""
    button = '<button type="button" data-save="scenario" hidden>Save the scenario</button>'
    return section(
        "Repeat it",
        f"<p>Save the scenario as {_FILE},"
        f" then:</p>{button}{verbatim(lines)}{paragraph(note, 'note')}",
    )


def _limits() -> str:
    """Return the limits of the model."""
    return section("Limits of the model", html_list(_LIMITS))


def _goals(report: ComparisonReport) -> str:
    """Return a folded list of the headlines for goals that say something else; "" if none."""
    others = [
        f"{GOALS[goal]}: {headline.text}"
        for goal, headline in report.headlines.items()
        if headline.text != report.headline
    ]
    return (
        html_details(
            "The same question for other goals",
            html_list([f"{one[0].upper()}{one[1:]}" for one in others]),
        )
        if others
        else ""
    )


def _limits_of(report: ComparisonReport) -> str:
    """Return the limits of the headline, with suggestions."""
    return "".join(paragraph(line) for line in report.first_headline.lines()[1:])


def _title(report: ComparisonReport) -> str:
    """Return the title of the report as plain text."""
    return visible(report.headline, 200)

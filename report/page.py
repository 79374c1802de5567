"""The file of a report: its parts in order, the figures with their data, and the one library that draws them, all inside."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from plotly.offline import get_plotlyjs

from report import sections
from report.figures import Drawn, Scene, figures
from report.pieces import folded, paragraph, rows_of, section, text
from sim.errors import ParameterError
from trainyard.results import outcomes
from trainyard.results.outcomes import Shown
from trainyard.store import Store
from trainyard.traces.sources import load_trace

_HERE: Final = Path(__file__).parent
_FORMATS: Final = ("png", "svg")


def html(shown: Shown, store: Store, *, created: datetime) -> str:
    """Return one HTML file that says everything of the complete runs of a study, and needs no network.

    Parameters
    ----------
    shown : Shown
        The runs; policies that are not complete are left out.
    store : Store
        Where they are kept, with the trace.
    created : datetime
        What is written as the time of making; with the same time, equal results give equal bytes.

    Raises
    ------
    TrainyardError
        If no policy is complete, or a stored result was removed meanwhile.
    """
    said = outcomes.report(shown, store)
    if said is None:
        raise ParameterError("No policy of this scenario is complete, so there is nothing to report. Run it first.")
    scene = Scene(shown, said, load_trace(shown.study.base.trace, store))
    drawn = figures(scene)
    missing = [title for at, title in enumerate(shown.titles) if not shown.complete(at) and title not in said.skipped]
    assumed = f"Assumed: {said.assumed}" if said.assumed else ""
    skipped = [f"{title} is skipped. {why}" for title, why in said.skipped.items()]
    parts = [
        f"<header><h1>{text(said.headline)}</h1>{sections.limits_of(said)}",
        f"{paragraph(assumed, 'note')}{paragraph(said.facts)}",
        *(paragraph(sentence, "note") for sentence in skipped),
        paragraph(f"Without a result, so not shown: {', '.join(missing)}." if missing else "", "note"),
        f"{sections.goals(said)}</header>",
        sections.comparison(said, {title: _swatch(*look) for title, look in scene.style.items()}),
        section("Figures", "".join(_figure(one) for one in drawn)),
        sections.belief(said),
        sections.policies(shown),
        sections.scenario(shown),
        sections.account(shown, store),
        sections.repeat(shown),
        sections.provenance(shown, created),
        sections.limits(),
    ]
    return _file(sections.title(said), "\n".join(parts), drawn, sections.document(shown))


def _figure(one: Drawn) -> str:
    alt = text(one.alt)
    buttons = "".join(
        f'<button type="button" data-plot="{one.name}" data-format="{form}" aria-label="Save this chart as {form.upper()}" hidden>{form.upper()}</button>'
        for form in _FORMATS
    )
    height = int(one.figure.layout.height)
    plot = f'<div class="plot" id="{one.name}" role="img" aria-label="{alt}" style="min-height: {height}px"></div>'
    note = paragraph(one.note, "note")
    return f'<figure role="figure" aria-label="{alt}">{plot}<figcaption>{alt}</figcaption>{note}{buttons}{folded("Data", rows_of(one.data))}</figure>'


def _swatch(colour: str, dash: str) -> str:
    """Return a short line as a policy is drawn in the figures."""
    drawn = {"dash": "8 4", "dot": "3 3", "dashdot": "8 3 3 3", "longdash": "12 4", "longdashdot": "12 3 3 3"}.get(dash, "")
    line = f'<line x1="0" y1="4" x2="30" y2="4" stroke="{colour}" stroke-width="3" stroke-dasharray="{drawn}"/>'
    return f'<svg width="30" height="8" aria-hidden="true">{line}</svg> '


def _file(title: str, body: str, drawn: Sequence[Drawn], scenario: str) -> str:
    style, script, library = (_HERE / "page.css").read_text("utf-8"), (_HERE / "page.js").read_text("utf-8"), get_plotlyjs()
    # Only these two scripts may run, so that nothing from a trace ever could; nothing may be loaded from anywhere.
    scripts = " ".join(f"'sha256-{_sha256(code)}'" for code in (library, script))
    policy = f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    data = {one.name: _plain(one.figure) for one in drawn}
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
<script type="application/json" id="figures">{_inert(json.dumps(data, sort_keys=True, separators=(",", ":")))}</script>
<script>{library}</script>
<script>{script}</script>
</body>
</html>
"""


def _plain(figure: Any) -> Any:
    """Return a figure as plain values, without the template that plotly puts around all of them."""
    made = json.loads(figure.to_json(engine="json"))
    made["layout"].pop("template", None)
    return made


def _inert(document: str) -> str:
    """Return JSON that cannot end the block it stands in."""
    return document.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sha256(code: str) -> str:
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()

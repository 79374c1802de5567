"""The figures of a report, each with its finding in words and its numbers as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

import charts
from sim.trace import Trace
from trainyard import text
from trainyard.results import diagnostics, gpu_types, groups
from trainyard.results.compare import together
from trainyard.results.outcomes import Report, Shown
from trainyard.runs.frames import drawn, first_of
from trainyard.text import plural

_TIME: Final = "Seconds since the first submission"
_OF: Final = {"cores": ("cpus", "cores", "cpus_used"), "memory": ("mem_gb", "GB", "mem_used")}
_RHO: Final = {"share": "Share of jobs", "rho": "At most so many times the reference"}
_RESOURCES: Final = {
    "t_s": _TIME,
    "held_cpus": "Cores held",
    "used_cpus": "Cores used",
    "there_cpus": "Cores there",
    "held_mem_gb": "GB held",
    "used_mem_gb": "GB used",
    "there_mem_gb": "GB there",
}
_USE: Final = {
    "gpu_type": "GPU type",
    "held_gpu_h": "Held (GPU-hours)",
    "capacity_gpu_h": "There (GPU-hours)",
    "held_usd": "Held (USD)",
    "capacity_usd": "All (USD)",
}
_GROUP: Final = 40
"""Characters of a name beside its number of jobs."""
_SAME: Final = 1.0 + 1e-9


@dataclass(frozen=True, eq=False)
class Drawn:
    """One figure.

    Parameters
    ----------
    name : str
        Of its files, and of its place in the page.
    figure : Figure
        What `charts` made.
    alt : str
        The finding as a sentence.
    data : DataFrame
        What it shows, columns named as a reader wants them.
    note : str
        How to read it; "" = the figure says it all.
    """

    name: str
    figure: Any
    alt: str
    data: pd.DataFrame
    note: str = ""


class Scene:
    """What every figure is drawn from.

    Parameters
    ----------
    shown : Shown
        The runs of the study.
    said : Report
        What they say.
    trace : Trace
        The jobs.
    """

    def __init__(self, shown: Shown, said: Report, trace: Trace) -> None:
        self.shown, self.said, self.trace = shown, said, trace
        self.cluster = shown.study.base.cluster
        # By the place in the study, as on the pages: a policy has one colour everywhere.
        style = charts.policy_style(shown.titles, shown.titles[shown.baseline])
        self.style = {title: style[title] for title in drawn(said.labels, said.baseline)}
        self.types = charts.type_style([kind.name for kind in self.cluster.types])
        self.axis = charts.TimeAxis(0.0, max(said.end_s, 1.0))

    def of(self, kind: str) -> dict[str, pd.DataFrame]:
        """Return the frames of one kind of the policies that are drawn."""
        return {title: self.said.frames[kind][title] for title in self.style}


def figures(scene: Scene) -> list[Drawn]:
    """Draw everything there is to see of a study.

    Raises
    ------
    StoreError
        If a stored result was removed meanwhile.
    """
    return [*_timeline(scene), _jct(scene), *_winners(scene), *_groups(scene), _parts(scene), *_allocations(scene), *_behind(scene), *_types(scene)]


def _timeline(scene: Scene) -> Iterator[Drawn]:
    kinds = ("queue", "utilisation", "capacity", "states") if scene.cluster.gpus else ("queue",)
    frames = {kind: scene.of(kind) for kind in kinds}
    title = "Who waits, and how busy are the GPUs?" if scene.cluster.gpus else "Who waits?"
    figure = charts.timeline(frames, (scene.style, scene.types), scene.axis, title=title)
    most = "; ".join(f"{name} {frame['waiting'].max():,.0f}" for name, frame in frames["queue"].items())
    alt = f"Jobs waiting{', GPUs busy and utilisation by GPU type' if scene.cluster.gpus else ''} over time. Most jobs waiting: {most}."
    first = first_of(scene.shown.study.repeats, scene.shown.study.base.seed)
    yield Drawn("timeline", figure, alt, _stacked(frames["queue"], {"t_s": _TIME, "waiting": "Jobs waiting"}), first)
    if scene.cluster.gpus:
        rows = [charts.state_row(name, frame, scene.axis) for name, frame in frames["states"].items()]
        idle = "; ".join(f"{name} {frame['fragmented'].max():,.0f}" for name, frame in frames["states"].items())
        note = "; ".join(f"{state.name}: {state.meaning}" for state in charts.STATES)
        data = _stacked(frames["states"], {"t_s": _TIME} | {state.column: f"GPUs {state.name}" for state in charts.STATES})
        alt = f"What the GPUs do over time, stacked, one row per policy. Most GPUs free on partly used nodes: {idle}."
        yield Drawn("states", charts.linked_rows(rows, scene.axis, "What do the GPUs do?"), alt, data, f"{note[0].upper()}{note[1:]}.")


def _winners(scene: Scene) -> Iterator[Drawn]:
    for at, (title, change) in enumerate(scene.said.changes.items()):
        if title in scene.style and len(change.histogram):
            parts = groups.told_parts(change, int(scene.said.counts["repeats"].iloc[0]))
            question = f"Who wins and who loses under {charts.literal(title)}, against {charts.literal(scene.said.baseline)}?"
            figure = charts.winners(change.histogram, parts, scene.style[title][0], question)
            told = f"{parts[0]} are done sooner under {title} than under {scene.said.baseline}, {parts[2]} later"
            data = change.histogram.rename(columns={"low": "From (times as long)", "high": "To (times as long)", "jobs": "Jobs"})
            yield Drawn(f"winners-{at + 1}", figure, f"Of {plural(change.jobs, 'job')}{together(scene.said.counts)} completed under both, {told}.", data)


def _groups(scene: Scene) -> Iterator[Drawn]:
    said = scene.said
    if not said.changes:
        return
    ways = groups.groupings(scene.trace, scene.shown.entries[scene.shown.places[0]][0].jobs())
    what, told = next(iter(groups.WHATS.items()))
    for by, grouping in ways.items():
        found = groups.by_group(scene.shown, grouping, list(scene.style), what)
        if found is None or found.table.empty:
            continue
        table = found.table
        counted = [f"{charts.visible(name, _GROUP)} ({plural(jobs, 'job')})" for name, jobs in zip(table["group"], table["jobs"].tolist(), strict=True)]
        question = f"Which jobs gain, which lose? By {grouping.title if grouping.title.startswith('GPU') else grouping.title.lower()}"
        figure = charts.dumbbell(table.assign(group=counted), scene.style, said.baseline, question, told)
        data = pd.DataFrame({"Group": table["group"], "Policy": table["label"], "Jobs": table["jobs"], "Mean JCT": table["value"].map(text.time)})
        data["Change"] = table["change"].map(text.change)
        yield Drawn(f"groups-{by}", figure, found.finding(said.baseline, told), data, found.note(said.baseline, together(said.counts)))


def _jct(scene: Scene) -> Drawn:
    curves = scene.of("cdf")
    left_out = {title: scene.said.left_out[title] for title in scene.style}
    figure = charts.jct_cdf(curves, scene.style, "How long do jobs take, from submission to finish?", left_out)
    halves = "; ".join(f"{name} {text.time(_at_half(frame))}" for name, frame in curves.items() if len(frame))
    alt = f"Share of jobs done within a time, by policy. Half of the jobs are done within: {halves or 'not known'}."
    return Drawn("jct", figure, alt, _stacked(curves, {"share": "Share of jobs", "jct_s": "Done within (s)"}))


def _at_half(curve: pd.DataFrame) -> float:
    return float(curve["jct_s"].iloc[min(int(curve["share"].searchsorted(0.5)), len(curve) - 1)])


def _parts(scene: Scene) -> Drawn:
    table = scene.said.parts
    told = "; ".join(f"{row['policy']} {text.time(row['jct_s'])}, of it {text.time(row['queue_s'])} waiting to start" for row in table.to_dict("records"))
    columns = {part.name.capitalize(): table[part.column].map(text.time) for part in charts.PARTS}
    data = pd.DataFrame({"Policy": table["policy"], "Jobs completed": table["jobs"], "Mean JCT": table["jct_s"].map(text.time), **columns})
    note = f"Means over completed jobs. {'; '.join(f'{part.name}: {part.meaning}' for part in charts.PARTS if (table[part.column] > 0.5).any())}."
    return Drawn("parts", charts.decomposition(table, "Where does the time of a job go?"), f"Mean JCT and its parts: {told}.", data, note)


def _allocations(scene: Scene) -> Iterator[Drawn]:
    if not scene.cluster.gpus:
        return
    ids, capacity = scene.said.job_ids, scene.of("capacity")
    for at, (title, series) in enumerate(scene.of("allocation").items()):
        figure = charts.allocation(series, scene.axis, ids, capacity[title], f"Which jobs hold the GPUs under {charts.literal(title)}?")
        named = ", ".join(charts.visible(ids[name]) for name in series.columns if name in ids)
        alt = f"GPUs per job over time under {title}, stacked. The jobs with the most GPU-hours: {named}."
        yield Drawn(f"allocation-{at + 1}", figure, alt, series.rename(columns={"t_s": _TIME, "others": "Other jobs"} | dict(ids)))


def _behind(scene: Scene) -> Iterator[Drawn]:
    found = diagnostics.behind(scene.shown, scene.trace)
    for what, (name, unit, metric) in _OF.items():
        frames = {title: found.resources[title] for title in scene.style if title in found.resources and f"used_{name}" in found.resources[title]}
        if frames:
            figure = charts.resources(frames, scene.style, (name, unit), scene.axis, f"How much of the {what} that jobs hold do they use?")
            table = scene.said.table
            told = "; ".join(f"{row['label']} {text.share(row['value'])}" for row in table[(table["metric"] == metric).to_numpy()].to_dict("records"))
            data = _stacked(frames, _RESOURCES)
            yield Drawn(f"resources-{name}", figure, f"{what.capitalize()} held and used over time. Used of held: {told or 'not known'}.", data)
    for at, (title, points) in enumerate(found.points.items()):
        near = found.accuracy[title]
        if title in scene.style:
            figure = charts.predictions(points, scene.style[title][0], f"How well was {charts.visible(title)} told how long jobs take?")
            said = f"{text.share(near.near)} of {plural(near.jobs, 'size')} within a factor of 2, half of them within {text.factor(near.median_factor)}."
            data = points[["job_id", "ideal_s", "believed_s"]].rename(columns={"job_id": "Job", "ideal_s": "True (s)", "believed_s": "Believed (s)"})
            yield Drawn(f"predictions-{at + 1}", figure, f"Believed over true ideal run times under {title}: {said}", data)


def _types(scene: Scene) -> Iterator[Drawn]:
    if not gpu_types.several_types(scene.shown):
        return
    found = gpu_types.type_report(scene.shown)
    use = {title: found.use[title] for title in scene.style}
    data = _stacked(use, _USE)
    busy = "; ".join(f"{title}: {', '.join(_busy(frame))}" for title, frame in use.items())
    yield Drawn("type-use", charts.type_use(use, scene.style, "How busy is each GPU type?"), f"Utilisation of each GPU type over the whole run: {busy}.", data)
    cost = "; ".join(f"{title} {text.money(frame['held_usd'].sum())} of {text.money(frame['capacity_usd'].sum())}" for title, frame in use.items())
    figure = charts.type_cost(use, scene.types, "What do the GPUs cost that jobs hold?")
    yield Drawn("type-cost", figure, f"Cost of the GPUs held, by GPU type, and of the whole cluster: {cost}.", data)
    for at, title in enumerate(scene.style):
        yield _shares(scene, found.shares[title], found.types, (at, title))
    curves = {title: found.fairness[title] for title in scene.style if len(found.fairness[title])}
    if curves:
        figure = charts.fairness_cdf(curves, scene.style, "Is every job done as soon as with its own part of the cluster?")
        late = "; ".join(f"{title}: {100 * float((frame['rho'] > _SAME).mean()):.0f} % of jobs later" for title, frame in curves.items())
        alt = f"Finish-time fairness: JCT divided by that with an equal part of every GPU type. {late}."
        yield Drawn("type-fairness", figure, alt, _stacked(curves, _RHO))


def _shares(scene: Scene, table: pd.DataFrame, types: tuple[str, ...], of: tuple[int, str]) -> Drawn:
    at, title = of
    whole = table[(table["kind"] == "all").to_numpy()]
    told = ", ".join(f"{name} {text.share(float(whole[name].iloc[0]))}" for name in types) if len(whole) else "nobody held a GPU"
    figure = charts.type_shares(table, {name: scene.types[name] for name in types}, f"Who gets which GPUs under {charts.literal(title)}?")
    columns = {"kind": "By", "group": "Group", "jobs": "Jobs", "gpu_h": "GPU-hours"} | {name: f"{name} (share)" for name in types}
    data = table.assign(gpu_h=table["gpu_s"] / 3600)[list(columns)].rename(columns=columns)
    return Drawn(f"type-shares-{at + 1}", figure, f"Share of GPU-hours by GPU type under {title}. All jobs: {told}.", data)


def _busy(frame: pd.DataFrame) -> list[str]:
    rows = zip(frame["gpu_type"], frame["held_gpu_h"], frame["capacity_gpu_h"], strict=True)
    return [f"{kind} {text.share(float(held) / float(there))}" for kind, held, there in rows if there > 0]


def _stacked(frames: Mapping[str, pd.DataFrame], columns: Mapping[str, str]) -> pd.DataFrame:
    """Return frames of several policies below each other, the policy in front, then those of the columns that are there."""
    rows = pd.concat([frame.assign(policy=title) for title, frame in frames.items()], ignore_index=True)
    named = {"policy": "Policy"} | {name: told for name, told in columns.items() if name in rows}
    return rows[list(named)].rename(columns=named)

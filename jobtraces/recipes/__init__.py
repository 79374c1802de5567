"""Formats as data: a recipe names the columns of a source and one expression for each fact of a
job; this package reads a file by it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase as fnmatch
from functools import cache
from importlib import resources
from typing import Final
from zoneinfo import available_timezones

import numpy as np
import pandas as pd

from jobtraces.readers.cells import LENGTHS, UNIX
from jobtraces.readers.check import unfinished
from jobtraces.readers.content import Content, Sample
from jobtraces.readers.draft import RUNNING, Draft, Format, Report
from jobtraces.readers.items import items, paths_of
from jobtraces.readers.options import SECONDS, OpenQuestionError, Question, ReadOptions
from jobtraces.readers.table import check_length
from jobtraces.recipes import engine
from jobtraces.recipes.parsing import parse
from jobtraces.recipes.recipe import Recipe, RecipeQuestion
from jobtraces.recipes.sources import (
    ItemSource,
    TableSource,
    assigned,
    builtin_rows,
    has_header,
    joined_rows,
)
from jobtraces.sandbox import ApartError, apart
from sim.errors import TraceError
from sim.trace import INSTANTS

__all__ = [
    "JSON_FORMATS",
    "Recipe",
    "formats",
    "gathered",
    "headless",
    "load",
    "parse",
    "recognised",
    "refuse",
    "shipped",
]

FORMAT: Final = "format"
"""The question by which format a file is read that fits several equally."""
KIND: Final = "kind"
"""The question which objects of a list are the jobs."""
MINE: Final = "mine/"
"""Begins the names of formats that users made."""
MOST_ASKED: Final = 20
"""Values of which one question asks in turn."""
_NAME: Final = 60
"""Letters of such a value that a question shows."""
SINCE: Final = "since"
"""The choice of the user from when a job counts: ``answer('since')``."""


@cache
def _texts() -> dict[str, str]:
    folder = resources.files(__package__).joinpath("formats")
    return {
        found.name: found.read_text(encoding="utf-8")
        for found in folder.iterdir()
        if found.name.endswith(".toml")
    }


@cache
def shipped() -> tuple[Recipe, ...]:
    """Return the recipes of this package in order of their names."""
    return tuple(parse(text, name) for name, text in sorted(_texts().items()))


def shipped_text(name: str) -> str:
    """Return the text of a recipe of this package.

    Raises
    ------
    TraceError
        If there is none of this name.
    """
    for where, text in _texts().items():
        if parse(text, where).name == name:
            return text
    raise TraceError(f"There is no recipe {name!r}. 'recipes list' names those that there are.")


JSON_FORMATS: Final = frozenset(
    recipe.name for recipe in shipped() if recipe.items is not None and not recipe.refuse
)


def matches(recipe: Recipe, sample: Sample) -> bool:
    """Tell whether the beginning of a file has all that a recipe asks for."""
    if recipe.items is not None:
        # Of a first item that is longer than the beginning all keys count that are to be seen.
        found = paths_of(sample.head, recipe.items) or sample.keys
        return sample.kind == "json" and all(found & {*names.split("|")} for names in recipe.paths)
    if sample.kind != "text":
        return False
    if recipe.required or not recipe.lines:
        told = (
            has_header(recipe, sample)
            and (not recipe.fields or len(sample.cells) in recipe.fields)
            and re.fullmatch(recipe.first_cell, sample.cells[0]) is not None
        )
        if told:
            return True
    if not recipe.lines:
        return False
    try:
        return bool(recipe.lines.layout(sample.head))
    except TraceError:  # to be said when the file is read
        return True


def headless(name: str, sample: Sample) -> bool:
    """Tell whether a file of this format has no header."""
    recipe = next((one for one in shipped() if one.name == name), None)
    return recipe is not None and bool(
        recipe.tables or (recipe.lines and not (recipe.required and has_header(recipe, sample)))
    )


def recognised(sample: Sample) -> Recipe | None:
    """Return the recipe that asks for most of those that recognise the beginning of a file."""
    return next(iter(rivals(sample)), None)


def rivals(sample: Sample, known: Sequence[Recipe] = ()) -> list[Recipe]:
    """Return the recipes that recognise the beginning of a file and ask for most, in order of their
    names: more than one only if it must be asked which is meant.
    """
    fitting = [recipe for recipe in known or shipped() if matches(recipe, sample)]
    most = max((recipe.weight for recipe in fitting), default=0)
    return [recipe for recipe in fitting if recipe.weight == most]


def which(content: Content, options: ReadOptions, known: Sequence[Recipe] = ()) -> Recipe | None:
    """Return the recipe by which a file is read.

    Raises
    ------
    OpenQuestionError
        If several fit equally, and neither the answer ``format`` nor the name of the file says
        which; the question tells the first job as each of them reads it.
    """
    equal = {recipe.name: recipe for recipe in rivals(content.sample, known)}
    if len(equal) < 2:
        only = next(iter(equal.values()), None)
        return _of_kinds(only, content, options) if only is not None else None
    if (answer := options.answers.get(FORMAT)) in equal:
        return equal[answer]
    named = [one for one in equal.values() if one.file and fnmatch(_file_of(content), one.file)]
    if len(named) == 1:
        return named[0]
    told = " ".join(
        f"By {one.title} {_first_job(one, content, options)}." for one in equal.values()
    )
    text = f"The file fits {len(equal)} formats equally. {told} Which is it?"
    titles = {name: one.title for name, one in equal.items()}
    raise OpenQuestionError(content.name, (Question(FORMAT, text, titles),))


def _file_of(content: Content) -> str:
    """Return the name of a file in small letters, without folders and the archive it was in."""
    return content.name.rpartition(": ")[2].replace("\\", "/").rpartition("/")[2].lower()


def _of_kinds(recipe: Recipe, content: Content, options: ReadOptions) -> Recipe:
    """Return the recipe by which a list of objects is read that may be of several kinds.

    Raises
    ------
    OpenQuestionError
        If objects of several kinds could be the jobs, and the answer ``kind`` does not say which.
    """
    if recipe.items is None or not any(path.startswith("kind=") for path in recipe.paths):
        return recipe
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for text, value in items(content.text, recipe.items, content.name):
        kind = str((value or {}).get("kind", ""))
        counts[kind] += 1
        first.setdefault(kind, text)
    found = {}
    for kind, text in first.items() if len(first) > 1 else ():
        paths = paths_of(f"[{text}]", "")
        fitting = [one for one in shipped() if one.items == recipe.items and one.paths <= paths]
        if fitting:
            found[kind] = max(fitting, key=lambda one: one.weight)
    if len(found) < 2:
        return recipe
    if (answer := options.answers.get(KIND)) in found:
        return found[answer]
    told = " and ".join(f"{counts[kind]:,} of kind {kind}" for kind in found)
    question = Question(
        KIND,
        f"The list holds {told}. Which of them are the jobs?",
        {kind: one.title.partition(" (")[0] for kind, one in found.items()},
    )
    raise OpenQuestionError(content.name, (question,))


def _first_job(recipe: Recipe, content: Content, options: ReadOptions) -> str:
    try:
        jobs = load(recipe, content, options).jobs
    except TraceError:
        return "it cannot be read"
    if jobs.empty:
        return "no job is left"
    first = jobs.iloc[0]
    return f"the first job takes {first['num_gpus']:g} GPUs for {first['duration_s']:,.0f} s"


def gathered(contents: Sequence[Content], options: ReadOptions) -> Content:
    """Return several files that are given together as one, if they are the tables of one format.

    Raises
    ------
    TraceError
        If no format is made of such files.
    """
    first, *rest = contents
    if options.recipe:  # a pattern of a user is tried where it may take long: in `load`
        return replace(first, beside=tuple(rest))
    for recipe in shipped():
        if recipe.tables and (tables := assigned(recipe, contents)):
            first = next(iter(tables.values()))
            rest = [one for one in contents if one is not first]
            return replace(first, beside=tuple(rest))
    names = ", ".join(content.name for content in contents)
    raise TraceError(
        f"{names}: these {len(contents)} files are not the tables of one trace. Choose one of them."
    )


def refuse(content: Content) -> None:
    """Say why a file cannot be read that looks like jobs and lacks what no one could guess.

    Raises
    ------
    TraceError
        If the file is one of those.
    """
    found = recognised(content.sample)
    if found is not None and found.refuse:
        raise TraceError(f"{content.name}: {found.refuse}.")


def formats() -> tuple[Format, ...]:
    """Return a format for every recipe by which files can be read."""
    readable = (recipe for recipe in shipped() if not recipe.refuse)
    # Logs, which most people have, are named first.
    return tuple(map(_format, sorted(readable, key=lambda recipe: recipe.lines is None)))


def of_user(text: str) -> Format:
    """Return the format of a recipe that a user wrote; a process of its own reads by it.

    Raises
    ------
    TraceError
        If the recipe is faulty.
    """
    recipe = parse(text, "the recipe")
    name = f"{MINE}{recipe.name.removeprefix(MINE)}"

    def load_apart(content: Content, options: ReadOptions) -> Draft:
        # What a mapping can be is more than can be sent.
        sent = replace(options, answers=dict(options.answers), mapping={})
        try:
            return apart(load_text, text, content, sent)
        except ApartError as error:
            raise TraceError(
                f"{content.name}: reading by the recipe {name} was stopped, because {error}."
                " Simplify its expressions, or cut a window out of the file."
            ) from error

    return Format(name, recipe.title, load_apart)


def load_text(text: str, content: Content, options: ReadOptions) -> Draft:
    """Read a file by the text of a recipe, as `load`."""
    return load(parse(text, "the recipe"), content, options)


def check(text: str, where: str) -> Recipe:
    """Check the text of a recipe without any data, in a process of its own.

    Raises
    ------
    TraceError
        If it is faulty.
    """
    recipe = parse(text, where)
    try:
        apart(_check, text, where)
    except (ApartError, engine.RecipeError) as error:
        raise TraceError(f"{where}: {error}. Correct the recipe.") from error
    return recipe


def _check(text: str, where: str) -> None:
    recipe = parse(text, where)
    if not recipe.refuse:
        engine.check(recipe)


def _format(recipe: Recipe) -> Format:
    return Format(
        recipe.name,
        recipe.title,
        lambda content, options: load(recipe, content, options),
        recipe.sources(),
    )


def load(recipe: Recipe, content: Content, options: ReadOptions) -> Draft:
    """Read a file by a recipe.

    Raises
    ------
    TraceError
        If it is no file of this format, or the recipe fails.
    """
    content, tables, unused = _arranged(recipe, content)
    kind = TableSource if recipe.items is None else ItemSource
    source = kind(recipe, content, options)
    header = source.header
    told_zone = options.zone or _zone_of(recipe, header)
    zone = told_zone or recipe.zone
    beside = Report(0)
    others = joined_rows(recipe, tables, options, beside)
    answers = _answers(recipe, options)
    try:
        told = {engine.ANSWER: answers, engine.HEADER: header}
        rows = source.rows()
        if recipe.builtin:
            table = rows.read_all()
            others |= builtin_rows(recipe, table, source.present)
            rows = table.to_reader()
        found = engine.run(recipe, rows, source.present, zone, others, told)
    except engine.RecipeError as error:
        raise TraceError(f"{content.name}: {error}") from error
    report = source.finish()
    report.guesses += beside.guesses
    report.warnings += beside.warnings
    if unused:
        report.guess(f"Not needed for {recipe.title}: {', '.join(unused)}.")
    jobs = _native(recipe, found, content.name)
    jobs = _in_units(jobs, source.raw, options)
    times = jobs.get("submit_time_s", pd.Series(dtype="float64"))
    usual = bool(times.notna().any()) and UNIX[0] <= float(times.median()) <= UNIX[1]
    naive = source.naive
    if naive is None:
        naive = _written_without_offset(found, content.name)
    if naive:
        report.guess(f"Times have no offset; they are read as {zone}.")
    _tell(recipe, found, header, report)
    for choice in recipe.choices:
        if recipe.merge is None or choice.id != recipe.merge.choice:
            report.offer(choice, options.answers)
    _ask(recipe, found, report, content.name, options)
    for at, rule in enumerate(recipe.alter):
        detail = found.get(f"{engine.DETAIL}{at}", "")
        report.alter(jobs, found[f"{engine.ALTERED}{at}"], rule.text, detail)
    jobs = _leave_out(recipe, jobs, found, report, options)
    _check_gpus(recipe, jobs, content.name, options)
    several = len(jobs)
    jobs = _merged(jobs, found, recipe, report, options)
    return Draft(
        jobs,
        report,
        usual or recipe.unix_times,
        "UTC" if naive is False or (naive is None and not told_zone) else zone,
        ids_repeat=recipe.ids_repeat,
        raw=source.raw,
        attempts=recipe.attempts or len(jobs) < several,
    )


def _native(recipe: Recipe, found: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the native columns, with the outcomes in our words."""
    jobs = found[list(recipe.columns)]
    if recipe.items is not None:
        for column in map(str, jobs.select_dtypes("str").columns):
            check_length(jobs[column], column, name)
    if "status" not in jobs:
        return jobs
    words = jobs["status"].fillna("").str.upper()
    outcomes = {word: recipe.status.get(word, word.lower()) for word in words.unique()}
    return jobs.assign(status=words.map(outcomes))


def _tell(recipe: Recipe, found: pd.DataFrame, header: Mapping[str, str], report: Report) -> None:
    for at, rule in enumerate(recipe.say):
        count = int(found[f"{engine.SAID}{at}"].sum())
        if count:
            told = rule.text.replace("{n}", f"{count:,}")
            for key, value in header.items():
                told = told.replace(f"{{{key}}}", value)
            (report.warnings if rule.warn else report.guesses).append(told)


def _check_gpus(recipe: Recipe, jobs: pd.DataFrame, name: str, options: ReadOptions) -> None:
    if recipe.without_gpus and options.cpu_jobs == "drop" and not (jobs["num_gpus"] > 0).any():
        raise TraceError(f"{name}: no job of this file names a GPU; {recipe.without_gpus}")


def _zone_of(recipe: Recipe, header: Mapping[str, str]) -> str:
    zone = header.get(recipe.lines.zone, "") if recipe.lines else ""
    return zone if zone in available_timezones() else ""


def _written_without_offset(found: pd.DataFrame, name: str) -> bool | None:
    """Tell whether written times of JSON have no offset; None = there are none.

    Raises
    ------
    TraceError
        If some have one and others do not.
    """
    told = [found[column].dropna() for column in found if str(column).startswith(engine.NAIVE)]
    kinds = {bool(value) for column in told for value in column.unique()}
    if len(kinds) > 1:
        raise TraceError(
            f"{name}: some times carry an offset and others do not. Give every time an offset, or"
            " none and choose a zone."
        )
    return next(iter(kinds), None)


def _merged(
    jobs: pd.DataFrame,
    found: pd.DataFrame,
    recipe: Recipe,
    report: Report,
    options: ReadOptions,
) -> pd.DataFrame:
    """Make one job of all records that belong to it, at the place of the first, where chosen."""
    merge = recipe.merge
    if merge is None or (
        any(ask.question.id == merge.choice for ask in recipe.asks)
        and _answers(recipe, options)[merge.choice] != "merge"
    ):
        return jobs
    ordered = jobs.sort_values(merge.order, kind="stable")
    by = ordered[merge.by] if merge.by in ordered else found[engine.MERGED].reindex(ordered.index)
    known = by.fillna("") != ""
    again = by.duplicated() & known
    if not again.any():
        return jobs
    for choice in (one for one in recipe.choices if one.id == merge.choice):
        told = replace(choice, text=choice.text.replace("{n}", f"{int(again.sum()):,}"))
        if report.offer(told, options.answers) != "merge":
            if choice.id not in options.answers:
                report.warnings.append(told.text)
            return jobs
    key = by.where(known, ordered.index.astype("str"))
    by_job = ordered.groupby(key.to_numpy(), sort=False)
    kept = ordered[~again].copy()
    first = key[~again].to_numpy()
    for native, how in merge.take.items():
        kept[native] = getattr(by_job[native], how)().reindex(first).to_numpy()
    if "duration_s" not in merge.take:
        several = (by_job.size().reindex(first) > 1).to_numpy()
        held = kept["end_time_s"] - kept["start_time_s"]
        kept["duration_s"] = held.where(several, kept["duration_s"])
    report.merge(jobs, again.reindex(jobs.index), "another record of the same job: merged into it")
    return kept.sort_index()


def _answers(recipe: Recipe, options: ReadOptions) -> dict[str, str]:
    """Return what is taken for the answers to all questions of a recipe."""
    asked = (*(ask.question for ask in recipe.asks), *recipe.choices)
    told = {one.id: options.answers.get(one.id, one.default) for one in asked}
    each = tuple(f"{ask.question.id}." for ask in recipe.asks if ask.each)
    told |= {key: value for key, value in options.answers.items() if each and key.startswith(each)}
    return {SINCE: options.since} | told


def _ask(
    recipe: Recipe, found: pd.DataFrame, report: Report, name: str, options: ReadOptions
) -> None:
    lacking = []
    for at, ask in enumerate(recipe.asks):
        concerned = found[found[f"{engine.ASKED}{at}"]]
        asked = _questions(ask, concerned, f"{engine.EACH}{at}", name)
        lacking += [told for told in asked if not report.ask(told, options.answers)]
    if lacking:
        raise OpenQuestionError(name, tuple(lacking))


def _questions(ask: RecipeQuestion, rows: pd.DataFrame, each: str, name: str) -> list[Question]:
    """Return what is asked because of some rows: a question, or one for each value in them.

    Raises
    ------
    TraceError
        If that would be too many.
    """
    counts = {"": len(rows)} if not ask.each else dict(rows[each].value_counts())
    if len(counts) > MOST_ASKED:
        raise TraceError(
            f"{name}: {len(counts):,} numbers are missing, of {', '.join(list(counts)[:3])} and so"
            f" on; only {MOST_ASKED} are asked for. Add a column that says them of every job."
        )
    return [
        replace(
            ask.question,
            id=f"{ask.question.id}.{value}" if ask.each else ask.question.id,
            text=ask.question.text.replace("{n}", f"{count:,}").replace("{value}", value[:_NAME]),
        )
        for value, count in counts.items()
        if count
    ]


def _arranged(recipe: Recipe, content: Content) -> tuple[Content, dict[str, Content], list[str]]:
    """Return the file that holds the records, all tables of the recipe, and files not needed."""
    tables = assigned(recipe, (content, *content.beside))
    for table in recipe.tables:
        if table.name not in tables and not table.optional:
            raise TraceError(
                f"{content.name}: the table {table.title} is wanted too. Give the tables of"
                f" {recipe.title} together: several files at once, or one zip archive of them."
            )
    unused = [one.name for one in content.beside if one not in tables.values()]
    if content.beside and not tables:
        raise TraceError(
            f"{content.name}: {recipe.title} is one file, but {len(unused) + 1} are given. Choose"
            " one of them."
        )
    if tables:
        content = tables[recipe.tables[0].name]
    return content, tables, unused


def _in_units(
    jobs: pd.DataFrame, raw: Mapping[str, pd.Series], options: ReadOptions
) -> pd.DataFrame:
    """Bring numbers to seconds where the user says that the file counts in something else."""
    units = dict.fromkeys(INSTANTS, options.time_unit)
    units |= dict.fromkeys(LENGTHS, options.duration_unit)
    for name, unit in units.items():
        if unit and name in jobs and name in raw:
            plain_numbers = pd.to_numeric(raw[name], errors="coerce").notna()
            factor = np.where(plain_numbers.reindex(jobs.index), SECONDS[unit], 1.0)
            jobs = jobs.assign(**{name: jobs[name] * factor})
    return jobs


def _leave_out(
    recipe: Recipe,
    jobs: pd.DataFrame,
    found: pd.DataFrame,
    report: Report,
    options: ReadOptions,
) -> pd.DataFrame:
    times = [name for name in ("start_time_s", "end_time_s") if name in jobs]
    last = float(jobs[times].max().max()) if times else np.nan
    for at, rule in enumerate(recipe.leave_out):
        held = (found[engine.LEFT_OUT] == at).reindex(jobs.index)
        if rule.text == RUNNING:
            since = found[engine.SINCE] if rule.since else jobs.get("start_time_s", np.nan)
            told = found[engine.SO_FAR] if rule.so_far else pd.Series(np.nan, index=found.index)
            so_far = told.where(told > 0, last - since).reindex(jobs.index)
            jobs = unfinished(jobs, held, so_far, report, options)
            if "end_time_s" in jobs:  # of jobs cut there
                jobs = jobs.assign(end_time_s=jobs["end_time_s"].where(~held.reindex(jobs.index)))
        else:
            jobs = report.drop(jobs, held, rule.text, jobs.get("status", ""))
    return jobs

"""Formats as data: a recipe names the columns of a source and one expression for each fact of a
job; this package reads a file by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Final

import numpy as np
import pandas as pd

from sim.errors import TraceError
from sim.readers.apart import ApartError, apart
from sim.readers.cells import UNIX
from sim.readers.clean import unfinished
from sim.readers.format import SECONDS, Draft, Format, ReadOptions
from sim.readers.items import paths_of
from sim.readers.mapping import LENGTHS
from sim.readers.questions import OpenQuestionError, Question
from sim.readers.recipes import engine
from sim.readers.recipes.recipe import Recipe, parse
from sim.readers.recipes.sources import ItemSource, TableSource, assigned, joined_rows
from sim.readers.report import Report
from sim.readers.sniff import Sample
from sim.readers.source import Content
from sim.trace import INSTANTS

__all__ = [
    "HEADLESS",
    "JSON_FORMATS",
    "Recipe",
    "formats",
    "gathered",
    "load",
    "parse",
    "recognised",
    "refuse",
    "shipped",
]

FORMAT: Final = "format"
"""The question by which format a file is read that fits several equally."""
MINE: Final = "mine/"
"""Begins the names of formats that users made."""
RUNNING: Final = "still running when the trace ends"


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
HEADLESS: Final = frozenset(recipe.name for recipe in shipped() if recipe.tables)
"""Formats whose tables have no header."""


def matches(recipe: Recipe, sample: Sample) -> bool:
    """Tell whether the beginning of a file has all that a recipe asks for."""
    if recipe.items is not None:
        return sample.kind == "json" and recipe.paths <= paths_of(sample.head, recipe.items)
    return (
        sample.kind == "text"
        and bool(sample.delimiter)
        and not recipe.without & sample.keys
        and all(sample.keys & set(names) for names in recipe.required)
        and (not recipe.exact or len(sample.keys) == len(recipe.required))
        and (not recipe.fields or len(sample.cells) in recipe.fields)
        and re.fullmatch(recipe.first_cell, sample.cells[0]) is not None
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
        If several fit equally, and the answer ``format`` does not say which; the question tells the
        first job as each of them reads it.
    """
    equal = {recipe.name: recipe for recipe in rivals(content.sample, known)}
    if len(equal) < 2:
        return next(iter(equal.values()), None)
    if (answer := options.answers.get(FORMAT)) in equal:
        return equal[answer]
    told = " ".join(
        f"By {one.title} {_first_job(one, content, options)}." for one in equal.values()
    )
    text = f"The file fits {len(equal)} formats equally. {told} Which is it?"
    titles = {name: one.title for name, one in equal.items()}
    raise OpenQuestionError(content.name, (Question(FORMAT, text, titles),))


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
    return tuple(_format(recipe) for recipe in shipped() if not recipe.refuse)


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

    return Format(name, recipe.title, lambda sample: matches(recipe, sample), load_apart)


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
        lambda sample: recognised(sample) is recipe,
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
    zone = options.zone or recipe.zone
    content, tables, unused = _arranged(recipe, content)
    kind = TableSource if recipe.items is None else ItemSource
    source = kind(recipe, content, options)
    beside = Report(0)
    others = joined_rows(recipe, tables, options, beside)
    try:
        found = engine.run(
            recipe, source.rows(), source.present, zone, others, _answers(recipe, options)
        )
    except engine.RecipeError as error:
        raise TraceError(f"{content.name}: {error}") from error
    report = source.finish()
    report.guesses += beside.guesses
    report.warnings += beside.warnings
    if unused:
        report.guess(f"Not needed for {recipe.title}: {', '.join(unused)}.")
    jobs = found[list(recipe.columns)].copy()
    if "status" in jobs:
        words = jobs["status"].fillna("").str.upper()
        outcomes = {word: recipe.status.get(word, word.lower()) for word in words.unique()}
        jobs["status"] = words.map(outcomes)
    _in_units(jobs, source.raw, options)
    times = jobs.get("submit_time_s", pd.Series(dtype="float64"))
    calendar = bool(times.notna().any()) and UNIX[0] <= float(times.median()) <= UNIX[1]
    if source.naive:
        report.guess(f"Times have no offset; they are read as {zone}.")
    for at, rule in enumerate(recipe.say):
        count = int(found[f"{engine.SAID}{at}"].sum())
        if count:
            told = rule.text.replace("{n}", f"{count:,}")
            (report.warnings if rule.warn else report.guesses).append(told)
    _ask(recipe, found, report, content.name, options)
    jobs = _leave_out(recipe, jobs, found[engine.LEFT_OUT], report, options)
    return Draft(
        jobs,
        report,
        calendar,
        zone if source.naive else "UTC",
        raw=source.raw,
        attempts=recipe.attempts,
    )


def _answers(recipe: Recipe, options: ReadOptions) -> dict[str, str]:
    """Return what is taken for the answers to all questions of a recipe."""
    asked = (ask.question for ask in recipe.asks)
    return {one.id: options.answers.get(one.id, one.default) for one in asked}


def _ask(
    recipe: Recipe, found: pd.DataFrame, report: Report, name: str, options: ReadOptions
) -> None:
    lacking = []
    for at, ask in enumerate(recipe.asks):
        count = int(found[f"{engine.ASKED}{at}"].sum())
        if count:
            told = replace(ask.question, text=ask.question.text.replace("{n}", f"{count:,}"))
            if not report.ask(told, options.answers):
                lacking.append(told)
    if lacking:
        raise OpenQuestionError(name, tuple(lacking))


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


def _in_units(jobs: pd.DataFrame, raw: Mapping[str, pd.Series], options: ReadOptions) -> None:
    """Bring numbers to seconds where the user says that the file counts in something else."""
    units = dict.fromkeys(INSTANTS, options.time_unit)
    units |= dict.fromkeys(LENGTHS, options.duration_unit)
    for name, unit in units.items():
        if unit and name in jobs and name in raw:
            plain_numbers = pd.to_numeric(raw[name], errors="coerce").notna()
            jobs[name] *= np.where(plain_numbers.reindex(jobs.index), SECONDS[unit], 1.0)


def _leave_out(
    recipe: Recipe, jobs: pd.DataFrame, rules: pd.Series, report: Report, options: ReadOptions
) -> pd.DataFrame:
    times = [name for name in ("start_time_s", "end_time_s") if name in jobs]
    last = float(jobs[times].max().max()) if times else np.nan
    for at, rule in enumerate(recipe.leave_out):
        held = (rules == at).reindex(jobs.index)
        if rule.text == RUNNING:
            so_far = last - jobs.get("start_time_s", pd.Series(np.nan, index=jobs.index))
            jobs = unfinished(jobs, held, so_far, report, options)
        else:
            jobs = report.drop(jobs, held, rule.text, jobs.get("status", ""))
    return jobs

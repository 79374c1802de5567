"""Formats as data: a recipe names the columns of a source and one expression for each fact of a
job; this package reads a file by it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Final

import numpy as np
import pandas as pd

from sim.errors import TraceError
from sim.readers.cells import UNIX
from sim.readers.clean import unfinished
from sim.readers.format import Draft, Format, ReadOptions
from sim.readers.recipes import engine
from sim.readers.recipes.items import paths_of
from sim.readers.recipes.recipe import Recipe, parse
from sim.readers.recipes.sources import ItemSource, TableSource, assigned, joined_rows
from sim.readers.report import Report
from sim.readers.sniff import Sample
from sim.readers.source import Content

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

RUNNING: Final = "still running when the trace ends"


@cache
def shipped() -> tuple[Recipe, ...]:
    """Return the recipes of this package in order of their names."""
    folder = resources.files(__package__).joinpath("formats")
    texts = {
        found.name: found.read_text(encoding="utf-8")
        for found in folder.iterdir()
        if found.name.endswith(".toml")
    }
    return tuple(parse(texts[name], name) for name in sorted(texts))


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
        and (not recipe.fields or len(sample.cells) in recipe.fields)
        and re.fullmatch(recipe.first_cell, sample.cells[0]) is not None
    )


def recognised(sample: Sample) -> Recipe | None:
    """Return the recipe that asks for most of those that recognise the beginning of a file."""
    fitting = [recipe for recipe in shipped() if matches(recipe, sample)]
    return max(fitting, key=lambda recipe: recipe.weight, default=None)


def gathered(contents: Sequence[Content]) -> Content:
    """Return several files that are given together as one, if they are the tables of one format.

    Raises
    ------
    TraceError
        If no format is made of such files.
    """
    names = ", ".join(content.name for content in contents)
    for recipe in shipped():
        tables = assigned(recipe, contents) if recipe.tables else {}
        if tables:
            first, *rest = tables.values()
            others = [one.name for one in contents if one not in tables.values()]
            unused = (f"Not needed for {recipe.title}: {', '.join(others)}.",) if others else ()
            return replace(first, guesses=(*first.guesses, *unused), beside=tuple(rest))
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
    tables = assigned(recipe, (content, *content.beside))
    for table in recipe.tables:
        if table.name not in tables and not table.optional:
            raise TraceError(
                f"{content.name}: the table {table.title} is wanted too. Give the tables of"
                f" {recipe.title} together: several files at once, or one zip archive of them."
            )
    if tables:
        content = tables[recipe.tables[0].name]
    kind = TableSource if recipe.items is None else ItemSource
    source = kind(recipe, content, options)
    beside = Report(0)
    others = joined_rows(recipe, tables, options, beside)
    try:
        found = engine.run(recipe, source.rows(), source.present, zone, others)
    except engine.RecipeError as error:
        raise TraceError(f"{content.name}: {error}") from error
    report = source.finish()
    report.guesses += beside.guesses
    report.warnings += beside.warnings
    jobs = found[list(recipe.columns)].copy()
    if "status" in jobs:
        words = jobs["status"].fillna("").str.upper()
        outcomes = {word: recipe.status.get(word, word.lower()) for word in words.unique()}
        jobs["status"] = words.map(outcomes)
    times = jobs.get("submit_time_s", pd.Series(dtype="float64"))
    calendar = bool(times.notna().any()) and UNIX[0] <= float(times.median()) <= UNIX[1]
    if source.naive:
        report.guess(f"Times have no offset; they are read as {zone}.")
    for at, rule in enumerate(recipe.say):
        count = int(found[f"{engine.SAID}{at}"].sum())
        if count:
            told = rule.text.replace("{n}", f"{count:,}")
            (report.warnings if rule.warn else report.guesses).append(told)
    jobs = _leave_out(recipe, jobs, found[engine.LEFT_OUT], report, options)
    return Draft(jobs, report, calendar, zone if source.naive else "UTC", raw=source.raw)


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

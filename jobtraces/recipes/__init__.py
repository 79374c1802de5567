"""Trace formats as data: a recipe has one SQL expression per native column."""

from __future__ import annotations

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

from jobtraces.readers.cells import DURATION_COLUMNS, OUTCOMES, UNIX_TIMES
from jobtraces.readers.check import handle_unfinished
from jobtraces.readers.content import Content, Sample
from jobtraces.readers.draft import RUNNING, Draft, Format, Report
from jobtraces.readers.items import first_item_paths, read_items
from jobtraces.readers.options import SECONDS, OpenQuestionError, Question, ReadOptions
from jobtraces.readers.table import check_length
from jobtraces.recipes import engine
from jobtraces.recipes.parsing import parse_recipe
from jobtraces.recipes.recipe import Recipe, RecipeQuestion
from jobtraces.recipes.sources import (
    ItemSource,
    TableSource,
    assign_tables,
    builtin_rows,
    header_misfit,
    join_rows,
    misfit,
)
from jobtraces.sandbox import SandboxError, run_limited
from sim.errors import TraceError
from sim.trace import INSTANTS

__all__ = [
    "JSON_FORMATS",
    "Recipe",
    "combine_tables",
    "lacks_header",
    "load",
    "parse_recipe",
    "recipe_formats",
    "recognize_recipe",
    "refuse_unreadable",
    "shipped_recipes",
]

FORMAT: Final = "format"
"""Id of the question that chooses between formats that fit equally."""
KIND: Final = "kind"
"""Id of the question that chooses which objects of a list are the jobs."""
USER_PREFIX: Final = "mine/"
"""Prefix of the format names of user recipes."""
MAX_ASKED_VALUES: Final = 20
"""Largest number of values that one question may be repeated for."""
_MAX_VALUE_CHARS: Final = 60
"""Characters of such a value that a question shows."""
SINCE: Final = "since"
"""Name of the ``since`` option in recipe expressions: ``answer('since')``."""


@cache
def _load_texts() -> dict[str, str]:
    """Return file name -> TOML text of every shipped recipe."""
    folder = resources.files(__package__).joinpath("formats")
    return {
        file.name: file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    }


@cache
def shipped_recipes() -> tuple[Recipe, ...]:
    """Return the shipped recipes, sorted by file name."""
    return tuple(parse_recipe(text, name) for name, text in sorted(_load_texts().items()))


def shipped_text(name: str) -> str:
    """Return the TOML text of a shipped recipe.

    Raises
    ------
    TraceError
        If there is no such recipe.
    """
    for where, text in _load_texts().items():
        if parse_recipe(text, where).name == name:
            return text
    raise TraceError(f"There is no recipe {name!r}. 'recipes list' shows all names.")


JSON_FORMATS: Final = frozenset(
    recipe.name for recipe in shipped_recipes() if recipe.items is not None and not recipe.refuse
)


def lacks_header(name: str, sample: Sample) -> bool:
    """Return whether a file of this format, by name, has no header line.

    True for formats of several tables, and for logs whose first line is not a header.
    """
    recipe = next((recipe for recipe in shipped_recipes() if recipe.name == name), None)
    return recipe is not None and bool(
        recipe.tables
        or (recipe.lines and not (recipe.required and not header_misfit(recipe, sample)))
    )


def recognize_recipe(sample: Sample) -> Recipe | None:
    """Return the most specific recipe that fits the start of a file, or None."""
    return next(iter(best_recipes(sample)), None)


def best_recipes(sample: Sample, recipes: Sequence[Recipe] = ()) -> list[Recipe]:
    """Return the most specific recipes that fit the start of a file.

    More than one: only the user can tell which format it is.
    """
    fitting = [
        recipe
        for recipe in recipes or shipped_recipes()
        if not misfit(recipe, sample, names_line=False)
    ]
    max_weight = max((recipe.weight for recipe in fitting), default=0)
    return [recipe for recipe in fitting if recipe.weight == max_weight]


def choose_recipe(
    content: Content, options: ReadOptions, recipes: Sequence[Recipe] = ()
) -> Recipe | None:
    """Return the recipe to read a file with, or None if no recipe fits.

    Of several the answer or else the file name decides; a single one may be replaced by that for
    the kind of objects that are the jobs.

    Raises
    ------
    OpenQuestionError
        If several recipes fit equally, and neither the answer ``format`` nor the file name decides;
        the question shows the first job as each of them reads it.
    """
    candidates = {recipe.name: recipe for recipe in best_recipes(content.sample, recipes)}
    if len(candidates) < 2:
        only = next(iter(candidates.values()), None)
        return _choose_by_kind(only, content, options) if only is not None else None
    if (answer := options.answers.get(FORMAT)) in candidates:
        return candidates[answer]
    by_file_name = [
        recipe
        for recipe in candidates.values()
        if recipe.file and fnmatch(_base_name(content), recipe.file)
    ]
    if len(by_file_name) == 1:
        return by_file_name[0]
    previews = " ".join(
        f"{recipe.title}: {_describe_first_job(recipe, content, options)}."
        for recipe in candidates.values()
    )
    question = f"The file fits {len(candidates)} formats equally. {previews} Which format is it?"
    titles = {name: recipe.title for name, recipe in candidates.items()}
    raise OpenQuestionError(content.name, (Question(FORMAT, question, titles),))


def _base_name(content: Content) -> str:
    """Return a file's base name in lower case, without folders and archive."""
    return content.name.rpartition(": ")[2].replace("\\", "/").rpartition("/")[2].lower()


def _choose_by_kind(recipe: Recipe, content: Content, options: ReadOptions) -> Recipe:
    """Return the recipe for the kind of objects that are the jobs in a list of mixed kinds.

    Kinds are values of the key ``kind``. The given recipe is returned if it names no kind, or if
    less than two kinds could be jobs.

    Raises
    ------
    OpenQuestionError
        If objects of several kinds could be the jobs, and there is no answer ``kind``.
    """
    if recipe.items is None or not any(path.startswith("kind=") for path in recipe.paths):
        return recipe
    counts: Counter[str] = Counter()
    first_of_kind: dict[str, str] = {}
    for text, value in read_items(content.text, recipe.items, content.name):
        kind = str((value or {}).get("kind", ""))
        counts[kind] += 1
        first_of_kind.setdefault(kind, text)
    by_kind = {}
    for kind, text in first_of_kind.items() if len(first_of_kind) > 1 else ():
        paths = first_item_paths(f"[{text}]", "")
        fitting = [
            one for one in shipped_recipes() if one.items == recipe.items and one.paths <= paths
        ]
        if fitting:
            by_kind[kind] = max(fitting, key=lambda recipe: recipe.weight)
    if len(by_kind) < 2:
        return recipe
    if (answer := options.answers.get(KIND)) in by_kind:
        return by_kind[answer]
    counted = " and ".join(f"{counts[kind]:,} of kind {kind}" for kind in by_kind)
    question = Question(
        KIND,
        f"The list holds {counted}. Which of these are the jobs?",
        {kind: one.title.partition(" (")[0] for kind, one in by_kind.items()},
    )
    raise OpenQuestionError(content.name, (question,))


def _describe_first_job(recipe: Recipe, content: Content, options: ReadOptions) -> str:
    """Return a phrase that shows the first job as a recipe reads it."""
    try:
        jobs = load(recipe, content, options).jobs
    except TraceError:
        return "it cannot be read"
    if jobs.empty:
        return "no job is left"
    first = jobs.iloc[0]
    return f"the first job takes {first['num_gpus']:g} GPUs for {first['duration_s']:,.0f} s"


def combine_tables(contents: Sequence[Content], options: ReadOptions) -> Content:
    """Return the main table of a multi-file trace, with the other files attached.

    With a user's recipe the first file counts as the main table.

    Raises
    ------
    TraceError
        If the files are not the tables of one format.
    """
    first, *rest = contents
    if options.recipe:  # its patterns may be slow: they run in the sandbox
        return replace(first, beside=tuple(rest))
    for recipe in shipped_recipes():
        if recipe.tables and (tables := assign_tables(recipe, contents)):
            first = next(iter(tables.values()))
            rest = [content for content in contents if content is not first]
            return replace(first, beside=tuple(rest))
    names = ", ".join(content.name for content in contents)
    raise TraceError(
        f"{names}: these {len(contents)} files are not the tables of one trace. Choose one of them."
    )


def refuse_unreadable(content: Content) -> None:
    """Raise an error for a file known to lack facts that a job needs.

    Raises
    ------
    TraceError
        If the recipe that fits the file refuses it.
    """
    recipe = recognize_recipe(content.sample)
    if recipe is not None and recipe.refuse:
        raise TraceError(f"{content.name}: {recipe.refuse}.")


def recipe_formats() -> tuple[Format, ...]:
    """Return one format per shipped recipe that can read files, formats of logs first."""
    readable = (recipe for recipe in shipped_recipes() if not recipe.refuse)
    # Logs are the most common files: list them first.
    return tuple(map(_format_of, sorted(readable, key=lambda recipe: recipe.lines is None)))


def user_format(text: str) -> Format:
    """Return the format of a user's recipe; it reads files in a sandboxed process.

    Raises
    ------
    TraceError
        If the recipe is faulty.
    """
    recipe = parse_recipe(text, "the recipe")
    name = f"{USER_PREFIX}{recipe.name.removeprefix(USER_PREFIX)}"

    def load_apart(content: Content, options: ReadOptions) -> Draft:
        """Read a file by the user's recipe in a sandboxed process."""
        # A mapping proxy cannot be pickled.
        sent = replace(options, answers=dict(options.answers), mapping={})
        try:
            return run_limited(load_text, text, content, sent)
        except SandboxError as error:
            raise TraceError(
                f"{content.name}: reading by the recipe {name} was stopped: {error}."
                " Simplify its expressions, or cut a window out of the file."
            ) from error

    return Format(name, recipe.title, load_apart)


def recognize_own(texts: Sequence[str], sample: Sample) -> tuple[list[str], list[int]]:
    """Return why each of some user recipes does not fit a file, and the best log recipes.

    A reason is "" if the recipe fits. The best are indexes of the most specific recipes of logs
    with patterns of cells; [] if a shipped recipe is more specific. Patterns run in the sandbox.

    Raises
    ------
    TraceError
        If recognition takes too long.
    """
    try:
        return run_limited(_recognize_here, tuple(texts), sample)
    except SandboxError as error:
        raise TraceError(
            f"Recognition by your own recipe was stopped: {error}. Simplify the patterns under"
            " [recognise] and [lines], or choose a format."
        ) from error


def _recognize_here(texts: Sequence[str], sample: Sample) -> tuple[list[str], list[int]]:
    """Compare recipes with a file as `recognize_own` does, in this process."""
    own = [parse_recipe(text, "the recipe") for text in texts]
    logs = [recipe for recipe in own if recipe.lines and recipe.lines.cells]
    best = best_recipes(sample, (*logs, *shipped_recipes())) if logs else []
    indexes = [index for index, recipe in enumerate(own) if any(recipe is one for one in best)]
    return [misfit(recipe, sample) for recipe in own], indexes


def load_text(text: str, content: Content, options: ReadOptions) -> Draft:
    """Read a file by the TOML text of a recipe; see `load`."""
    return load(parse_recipe(text, "the recipe"), content, options)


def check_recipe(text: str, where: str) -> Recipe:
    """Parse a recipe and check its expressions without data, in a sandboxed process.

    Returns the recipe.

    Raises
    ------
    TraceError
        If it is faulty.
    """
    recipe = parse_recipe(text, where)
    for word, outcome in recipe.status.items():
        if outcome not in OUTCOMES:
            raise TraceError(
                f"{where}: status.{word} = {outcome!r} is not an outcome. Use"
                f" {', '.join(OUTCOMES[:-1])} or {OUTCOMES[-1]}."
            )
    try:
        run_limited(_check_here, text, where)
    except (SandboxError, engine.RecipeError) as error:
        raise TraceError(f"{where}: {error}. Correct the recipe.") from error
    return recipe


def _check_here(text: str, where: str) -> None:
    """Check the expressions of a recipe in this process."""
    recipe = parse_recipe(text, where)
    if not recipe.refuse:
        engine.check(recipe)


def _format_of(recipe: Recipe) -> Format:
    """Return the format that reads files by a recipe."""
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
        If the file is not of this format, or an expression fails.
    """
    content, tables, unused = _arrange_tables(recipe, content)
    source_class = TableSource if recipe.items is None else ItemSource
    source = source_class(recipe, content, options)
    header = source.header
    known_zone = options.zone or _header_zone(recipe, header)
    zone = known_zone or recipe.zone
    join_report = Report(0)
    joined = join_rows(recipe, tables, options, join_report)
    answers = _effective_answers(recipe, options)
    try:
        functions = {engine.ANSWER: answers, engine.HEADER: header}
        rows = source.rows()
        if recipe.builtin:
            table = rows.read_all()
            joined |= builtin_rows(recipe, table, source.present)
            rows = table.to_reader()
        evaluated = engine.evaluate(recipe, rows, source.present, zone, joined, functions)
    except engine.RecipeError as error:
        raise TraceError(f"{content.name}: {error}") from error
    report = source.finish()
    report.guesses += join_report.guesses
    report.warnings += join_report.warnings
    if unused:
        report.guess(f"Files not needed for {recipe.title}: {', '.join(unused)}.")
    jobs = _native_columns(recipe, evaluated, content.name)
    jobs = _convert_units(jobs, source.raw, options)
    times = jobs.get("submit_time_s", pd.Series(dtype="float64"))
    are_unix_times = (
        bool(times.notna().any()) and UNIX_TIMES[0] <= float(times.median()) <= UNIX_TIMES[1]
    )
    naive = source.naive
    if naive is None:
        naive = _lacks_offsets(evaluated, content.name)
    if naive:
        report.guess(f"Times have no offset; they are read as {zone}.")
    _report_sentences(recipe, evaluated, header, report)
    for choice in recipe.choices:
        if recipe.merge is None or choice.id != recipe.merge.choice:
            report.ask_optional(choice, options.answers)
    _ask_questions(recipe, evaluated, report, content.name, options)
    for index, rule in enumerate(recipe.alter):
        detail = evaluated.get(f"{engine.DETAIL}{index}", "")
        report.alter(jobs, evaluated[f"{engine.ALTERED}{index}"], rule.text, detail)
    jobs = _drop_rows(recipe, jobs, evaluated, report, options)
    _check_gpus(recipe, jobs, content.name, options)
    record_count = len(jobs)
    jobs = _merge_records(jobs, evaluated, recipe, report, options)
    return Draft(
        jobs,
        report,
        are_unix_times or recipe.unix_times,
        "UTC" if naive is False or (naive is None and not known_zone) else zone,
        ids_repeat=recipe.ids_repeat,
        raw=source.raw,
        attempts=recipe.attempts or len(jobs) < record_count,
    )


def _native_columns(recipe: Recipe, evaluated: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the native columns, with the status words translated to outcomes.

    Unknown words are in lower case.

    Raises
    ------
    TraceError
        If a text of a JSON file is too long.
    """
    jobs = evaluated[list(recipe.columns)]
    if recipe.items is not None:
        for column in map(str, jobs.select_dtypes("str").columns):
            check_length(jobs[column], column, name)
    if "status" not in jobs:
        return jobs
    words = jobs["status"].fillna("").str.upper()
    outcomes = {word: recipe.status.get(word, word.lower()) for word in words.unique()}
    return jobs.assign(status=words.map(outcomes))


def _report_sentences(
    recipe: Recipe, evaluated: pd.DataFrame, header: Mapping[str, str], report: Report
) -> None:
    """Add the recipe's sentences about matching rows to the report's guesses or warnings."""
    for index, rule in enumerate(recipe.say):
        count = int(evaluated[f"{engine.SAID}{index}"].sum())
        if count:
            sentence = rule.text.replace("{n}", f"{count:,}")
            for key, value in header.items():
                sentence = sentence.replace(f"{{{key}}}", value)
            (report.warnings if rule.warn else report.guesses).append(sentence)


def _check_gpus(recipe: Recipe, jobs: pd.DataFrame, name: str, options: ReadOptions) -> None:
    """Raise an error if no job of the file has GPUs and CPU jobs are dropped."""
    if recipe.without_gpus and options.cpu_jobs == "drop" and not (jobs["num_gpus"] > 0).any():
        raise TraceError(f"{name}: no job of this file names a GPU; {recipe.without_gpus}")


def _header_zone(recipe: Recipe, header: Mapping[str, str]) -> str:
    """Return the time zone named in a log's comments, "" if none or unknown."""
    zone = header.get(recipe.lines.zone, "") if recipe.lines else ""
    return zone if zone in available_timezones() else ""


def _lacks_offsets(evaluated: pd.DataFrame, name: str) -> bool | None:
    """Return whether written times in JSON lack a UTC offset; None without such times.

    Raises
    ------
    TraceError
        If only some times have an offset.
    """
    flags = [
        evaluated[column].dropna() for column in evaluated if str(column).startswith(engine.NAIVE)
    ]
    kinds = {bool(value) for column in flags for value in column.unique()}
    if len(kinds) > 1:
        raise TraceError(
            f"{name}: only some times have a UTC offset. Give every time an offset, or none, and"
            " choose a time zone."
        )
    return next(iter(kinds), None)


def _merge_records(
    jobs: pd.DataFrame,
    evaluated: pd.DataFrame,
    recipe: Recipe,
    report: Report,
    options: ReadOptions,
) -> pd.DataFrame:
    """Merge the records of each job into its first record, if the user chose that.

    Without an answer the jobs are returned unmerged, with a warning.
    """
    merge = recipe.merge
    if merge is None or (
        any(ask.question.id == merge.choice for ask in recipe.asks)
        and _effective_answers(recipe, options)[merge.choice] != "merge"
    ):
        return jobs
    ordered = jobs.sort_values(merge.order, kind="stable")
    by = (
        ordered[merge.by]
        if merge.by in ordered
        else evaluated[engine.MERGED].reindex(ordered.index)
    )
    has_key = by.fillna("") != ""
    is_repeat = by.duplicated() & has_key
    if not is_repeat.any():
        return jobs
    for choice in (one for one in recipe.choices if one.id == merge.choice):
        question = replace(choice, text=choice.text.replace("{n}", f"{int(is_repeat.sum()):,}"))
        if report.ask_optional(question, options.answers) != "merge":
            if choice.id not in options.answers:
                report.warnings.append(question.text)
            return jobs
    key = by.where(has_key, ordered.index.astype("str"))
    by_job = ordered.groupby(key.to_numpy(), sort=False)
    merged = ordered[~is_repeat].copy()
    kept_keys = key[~is_repeat].to_numpy()
    for native, how in merge.take.items():
        merged[native] = getattr(by_job[native], how)().reindex(kept_keys).to_numpy()
    if "duration_s" not in merge.take:
        has_repeats = (by_job.size().reindex(kept_keys) > 1).to_numpy()
        span_s = merged["end_time_s"] - merged["start_time_s"]
        merged["duration_s"] = span_s.where(has_repeats, merged["duration_s"])
    report.merge(
        jobs, is_repeat.reindex(jobs.index), "another record of the same job: merged into it"
    )
    return merged.sort_index()


def _effective_answers(recipe: Recipe, options: ReadOptions) -> dict[str, str]:
    """Return question id -> the user's answer or the default, plus the ``since`` option.

    Answers to questions that are repeated per value are included.
    """
    questions = (*(ask.question for ask in recipe.asks), *recipe.choices)
    answers = {one.id: options.answers.get(one.id, one.default) for one in questions}
    prefixes = tuple(f"{ask.question.id}." for ask in recipe.asks if ask.each)
    answers |= {
        key: value
        for key, value in options.answers.items()
        if prefixes and key.startswith(prefixes)
    }
    return {SINCE: options.since} | answers


def _ask_questions(
    recipe: Recipe, evaluated: pd.DataFrame, report: Report, name: str, options: ReadOptions
) -> None:
    """Add the recipe's questions about matching rows to the report.

    Raises
    ------
    OpenQuestionError
        If questions have neither an answer nor a default.
    """
    unanswered = []
    for index, ask in enumerate(recipe.asks):
        rows = evaluated[evaluated[f"{engine.ASKED}{index}"]]
        questions = _row_questions(ask, rows, f"{engine.EACH}{index}", name)
        unanswered += [
            question for question in questions if not report.ask(question, options.answers)
        ]
    if unanswered:
        raise OpenQuestionError(name, tuple(unanswered))


def _row_questions(ask: RecipeQuestion, rows: pd.DataFrame, each: str, name: str) -> list[Question]:
    """Return the questions about some rows: one, or one per distinct value; [] without rows.

    Number of rows and value are filled into the texts.

    Raises
    ------
    TraceError
        If there are more values than may be asked about.
    """
    counts = {"": len(rows)} if not ask.each else dict(rows[each].value_counts())
    if len(counts) > MAX_ASKED_VALUES:
        raise TraceError(
            f"{name}: {len(counts):,} values lack a number ({', '.join(list(counts)[:3])}, ...); at"
            f" most {MAX_ASKED_VALUES} can be asked for. Add a column with the number of each job."
        )
    return [
        replace(
            ask.question,
            id=f"{ask.question.id}.{value}" if ask.each else ask.question.id,
            text=ask.question.text.replace("{n}", f"{count:,}").replace(
                "{value}", value[:_MAX_VALUE_CHARS]
            ),
        )
        for value, count in counts.items()
        if count
    ]


def _arrange_tables(
    recipe: Recipe, content: Content
) -> tuple[Content, dict[str, Content], list[str]]:
    """Return the main file, all tables by name, and the names of unused files.

    Raises
    ------
    TraceError
        If a required table is missing, or several files are given for a format of one file.
    """
    tables = assign_tables(recipe, (content, *content.beside))
    for table in recipe.tables:
        if table.name not in tables and not table.optional:
            raise TraceError(
                f"{content.name}: the table {table.title} is missing. Give all tables of"
                f" {recipe.title} at once, as several files or one zip archive."
            )
    unused = [other.name for other in content.beside if other not in tables.values()]
    if content.beside and not tables:
        raise TraceError(
            f"{content.name}: {recipe.title} is one file, but {len(unused) + 1} files were given."
            " Choose one of them."
        )
    if tables:
        content = tables[recipe.tables[0].name]
    return content, tables, unused


def _convert_units(
    jobs: pd.DataFrame, raw: Mapping[str, pd.Series], options: ReadOptions
) -> pd.DataFrame:
    """Convert numeric times and durations to seconds, from the units the user set.

    Values from cells that are not plain numbers, such as dates, stay unchanged.
    """
    units = dict.fromkeys(INSTANTS, options.time_unit)
    units |= dict.fromkeys(DURATION_COLUMNS, options.duration_unit)
    for name, unit in units.items():
        if unit and name in jobs and name in raw:
            is_number = pd.to_numeric(raw[name], errors="coerce").notna()
            factor = np.where(is_number.reindex(jobs.index), SECONDS[unit], 1.0)
            jobs = jobs.assign(**{name: jobs[name] * factor})
    return jobs


def _drop_rows(
    recipe: Recipe,
    jobs: pd.DataFrame,
    evaluated: pd.DataFrame,
    report: Report,
    options: ReadOptions,
) -> pd.DataFrame:
    """Drop the rows that the recipe's leave_out rules match; cut running jobs on request.

    A cut job runs until the last recorded instant of the trace, unless its run time is recorded.
    """
    times = [name for name in ("start_time_s", "end_time_s") if name in jobs]
    trace_end_s = float(jobs[times].max().max()) if times else np.nan
    for index, rule in enumerate(recipe.leave_out):
        is_match = (evaluated[engine.LEFT_OUT] == index).reindex(jobs.index)
        if rule.text == RUNNING:
            started_s = evaluated[engine.SINCE] if rule.since else jobs.get("start_time_s", np.nan)
            recorded_s = (
                evaluated[engine.SO_FAR]
                if rule.so_far
                else pd.Series(np.nan, index=evaluated.index)
            )
            run_s = recorded_s.where(recorded_s > 0, trace_end_s - started_s).reindex(jobs.index)
            jobs = handle_unfinished(jobs, is_match, run_s, report, options)
            if "end_time_s" in jobs:  # a cut job has no recorded end
                jobs = jobs.assign(
                    end_time_s=jobs["end_time_s"].where(~is_match.reindex(jobs.index))
                )
        else:
            jobs = report.drop(jobs, is_match, rule.text, jobs.get("status", ""))
    return jobs

"""Which column of an unknown table probably means what: by its name in six languages, and only
where its cells fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import pandas as pd

from jobtraces.readers.options import SECONDS
from jobtraces.readers.sniff import plain
from jobtraces.readers.values import Column, column_of
from jobtraces.readers.words import bare, known_words, words
from sim.trace import COLUMNS, INSTANTS, NUMBERS, REQUIRED

YES_NO: Final = ("preemptible", "requeue")
LENGTHS: Final = ("duration_s", "time_limit_s")
TIMES_SIGN: Final = "*"
"""Between the two columns of a product: ``nodes*gpus_per_node``."""
PER: Final = {"nodes": "per_node", "workers": "per_worker"}
_GROUPS: Final = ("user", "vc")
_NO_GROUP: Final = ("time", "queue", "delay", "mem", "wait", "dauer")
_MOST_GROUPS: Final = 1000
_BRACKETS: Final = re.compile(r"[(\[（【]([^)\]）】]*)[)\]）】]")


ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    native: tuple(words()["facts"][native]) for native in COLUMNS
}
"""Native column -> names seen in public traces and exports, the most telling first."""


@dataclass(frozen=True)
class Name:
    """What the name of a column says.

    Parameters
    ----------
    forms : tuple of (str, int)
        The bare name without its unit, and shorter ones without words that say nothing; with how
        well a match by each counts.
    unit : str
        "s", "ms", "min", "h", "d", "%", "" = it says none.
    utc : bool
        Whether it says that times are of UTC.
    """

    forms: tuple[tuple[str, int], ...]
    unit: str
    utc: bool


@cache
def name_of(column: str) -> Name:
    """Read the name of a column: ``Dauer (h)`` is a ``dauer`` in hours."""
    units = known_words("units")
    inside = [bare(text) for text in _BRACKETS.findall(column)]
    unit = next((units[text][0] for text in inside if text in units), "")
    if not unit and any("%" in text for text in _BRACKETS.findall(column)):
        unit = "%"
    left = _BRACKETS.sub(" ", column)
    forms = {bare(left): 3}
    parts = [part for part in re.split(r"[\s_.\-/]+", left) if part]
    if not unit and len(parts) > 1 and bare(parts[-1]) in units and "日" not in parts[-1]:
        unit = units[bare(parts[-1])][0]
        kept = parts[:-2] if bare(parts[-2]) in ("in", "en") and len(parts) > 2 else parts[:-1]
        forms[bare("_".join(kept))] = 3
    whole = bare(left)
    if not unit and whole not in known_words("facts"):
        # durationMs, 运行时长秒: only words of two letters or more, or in Chinese, are units there.
        for word, (key, _) in units.items():
            rest = whole.removesuffix(word)
            long = len(word) > 1 or not word.isascii()
            if rest != whole and long and rest in known_words("facts"):
                unit, forms[rest] = key, 3
    for form in list(forms):
        for shorter in _without_fillers(form):
            forms.setdefault(shorter, 2)
    utc = any(text in ("utc", "gmt") for text in (*inside, *map(bare, parts)))
    return Name(tuple(forms.items()), unit, utc)


def _without_fillers(form: str) -> set[str]:
    found: set[str] = set()
    queue = [form]
    before, after = (
        [bare(word) for word in words()["fillers"][key]] for key in ("before", "after")
    )
    while queue:
        one = queue.pop()
        shorter = {
            *(one.removeprefix(word) for word in before),
            *(one.removesuffix(word) for word in after),
        } - {one, *found}
        # What is left of `job_time` could be anything.
        kept = {text for text in shorter if len(text) > 1 and text not in ("time", "timestamp")}
        found |= kept
        queue += kept
    return found


def guess_mapping(
    columns: Iterable[str] | pd.DataFrame, chosen: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Guess which column means what.

    Parameters
    ----------
    columns : iterable of str or DataFrame
        Names of the table, as written or plain; of a table with cells, a column is only taken
        where most of its cells fit the fact.
    chosen : mapping or None
        Native -> source, as the user set it; kept, and its sources are not guessed for anything
        else. "" = leave this one out.

    Returns
    -------
    dict
        Native column -> plain source column; no source occurs twice. GPUs may be a product of two,
        ``nodes*gpus_per_node``.
    """
    cells = columns if isinstance(columns, pd.DataFrame) else None
    written = list(dict.fromkeys(str(column) for column in columns))
    present = list(dict.fromkeys(plain(column) for column in written))
    fixed = {native: plain_source(source, present) for native, source in (chosen or {}).items()}
    taken = {part for source in fixed.values() for part in source.split(TIMES_SIGN)} | set(
        fixed.values()
    )
    mapping = {native: source for native, source in fixed.items() if source}
    ranked = sorted(
        (score, COLUMNS.index(native), place, at, native, source)
        for at, source in enumerate(present)
        for native, (score, place) in _facts_of(source).items()
    )
    for *_, native, source in ranked:
        if native in mapping or native in fixed or source in taken:
            continue
        if cells is not None and not fits(native, source, column_of(cells[source])):
            continue
        mapping[native] = source
        taken.add(source)
    if "num_gpus" not in mapping and "num_gpus" not in fixed:
        # The nodes of a job are a fact of their own, too.
        mapping |= _product(present, taken - {mapping.get("nodes", "")})
    return {native: mapping[native] for native in (*COLUMNS, *mapping) if native in mapping}


def plain_source(source: str, present: Iterable[str]) -> str:
    """Return the plain name of a column, or of both columns of a product."""
    whole = plain(source)
    if whole in present or TIMES_SIGN not in source:
        return whole
    return TIMES_SIGN.join(plain(part) for part in source.split(TIMES_SIGN))


def _facts_of(source: str) -> dict[str, tuple[int, int]]:
    """Return the facts that a name may stand for, each with its rank; less is better."""
    found: dict[str, tuple[int, int]] = {}
    name = name_of(source)
    for form, score in name.forms:
        for native, at in _facts().get(form, ()):
            # `gpu_milli` counts thousandths and `GPUs (h)` the time of GPUs, neither of them GPUs.
            if name.unit in SECONDS and native not in (*INSTANTS, *LENGTHS):
                continue
            # `gpu_time` is no number of GPUs and `queue_time` no queue: only instants may lose a
            # word for time.
            if score == 3 or native in INSTANTS or not source.endswith(("time", "date")):
                found[native] = min(found.get(native, (9, 0)), (3 - score, at))
    return found


@cache
def _facts() -> Mapping[str, list[tuple[str, int]]]:
    """Return bare name -> facts that it stands for, each with its place in their list."""
    found: dict[str, list[tuple[str, int]]] = {}
    for native, listed in ALIASES.items():
        for at, alias in enumerate(listed):
            found.setdefault(bare(alias), []).append((native, at))
    return found


def factor(present: Iterable[str], kind: str, table: pd.DataFrame | None = None) -> str:
    """Return the column that holds a factor of the number of GPUs ("nodes", "workers", "per_node",
    "per_worker"), "" if there is none.
    """
    names = {bare(name) for name in words()["factors"][kind]}
    for source in present:
        if any(form in names for form, _ in name_of(source).forms) and (
            table is None or column_of(table[source]).numbers
        ):
            return source
    return ""


def _product(present: list[str], taken: set[str]) -> dict[str, str]:
    for many, each in PER.items():
        pair = factor(present, many), factor(present, each)
        if all(pair) and not taken & set(pair):
            return {"num_gpus": TIMES_SIGN.join(pair)}
    return {}


def fits(native: str, source: str, column: Column) -> bool:
    """Tell whether the cells of a column could be a fact of jobs."""
    kinds = {
        **dict.fromkeys(INSTANTS, column.moments),
        **dict.fromkeys(LENGTHS, column.lengths),
        "num_gpus": column.gpus,
    }
    if column.empty:
        return True
    if native in kinds:
        return column.numbers or kinds[native]
    if native in NUMBERS:
        return column.numbers or native in YES_NO
    if native == "gpu_type":
        return not column.numbers
    if native in _GROUPS and (column.numbers or column.moments or column.lengths):
        # Seconds in a queue are no queue, and numbers without end are no users.
        few = column.numbers and column.distinct <= _MOST_GROUPS
        return few and not any(word in source for word in _NO_GROUP)
    return True


def missing(mapping: Mapping[str, str]) -> tuple[str, ...]:
    """Return the required columns that a mapping of native to source columns does not give.

    A start and an end together give the duration, and an id is not needed.
    """
    spans = mapping.get("start_time_s") and mapping.get("end_time_s")
    return tuple(
        native
        for native in REQUIRED[1:]
        if not mapping.get(native) and not (native == "duration_s" and spans)
    )

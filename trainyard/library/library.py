"""The library: stored studies, sweeps and searches by owner, with names and tags."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from sim.errors import ParameterError, TrainyardError
from sim.result import RunResult
from trainyard.results.differences import branch_title, source_name, study_changes
from trainyard.runs.pool import WorkerPool
from trainyard.runs.run import scenario_key
from trainyard.runs.run import store_result as keep_result
from trainyard.store import Store, StoreError
from trainyard.store.rows import ShelvedRecipe
from trainyard.study.branch_point import KIND as FROM_HERE
from trainyard.study.branch_point import FromHere
from trainyard.study.check import KIND as CHECK
from trainyard.study.check import Check
from trainyard.study.scenario import MADE, READY, Scenario
from trainyard.study.size_question import SizeQuestion
from trainyard.study.study import Study
from trainyard.study.sweep import Sweep
from trainyard.traces.samples import SAMPLES
from trainyard.traces.sources import Source, apply_changes, clear_cache, source_digest

Recipe = Study | Sweep | SizeQuestion | FromHere | Check
HERE: Final = "this-machine"
"""Owner of the items that the command line stores."""
MAX_NAME_LENGTH: Final = 120
MAX_TAGS: Final = 20
MAX_TAG_CHARS: Final = 40
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_KINDS: Final = {
    "study": Study,
    "sweep": Sweep,
    "plan": SizeQuestion,
    FROM_HERE: FromHere,
    CHECK: Check,
}
KINDS: Final = {
    "study": "comparison",
    "sweep": "sweep",
    "plan": "plan",
    FROM_HERE: "what-if",
    CHECK: "check",
}
"""Kind of an item -> name for users."""


@dataclass(frozen=True)
class Item:
    """An item on a shelf.

    Parameters
    ----------
    id : str
        Hash of its document.
    kind : str
        Key of `KINDS`: a comparison, a sweep, a size search, a run with changes, or a backtest.
    title, name : str
        Default title, and the name given by its owner ("" = none).
    tags : tuple of str
        Tags given by its owner.
    used_s : float, seconds
        Time of the last run or change, since the epoch.
    runs, there : int
        Number of its runs, and of those stored.
    """

    id: str
    kind: str
    title: str
    name: str
    tags: tuple[str, ...]
    used_s: float
    runs: int
    there: int
    kept: ShelvedRecipe

    def recipe(self) -> Recipe:
        """Return the study, sweep or search of the item.

        Raises
        ------
        TrainyardError
            If this version cannot read it.
        """
        return read_recipe(dict(self.kept.document))


def read_recipe(document: dict[str, Any]) -> Recipe:
    """Return the study, sweep or search in a document.

    Raises
    ------
    TrainyardError
        If the document is invalid.
    """
    return _KINDS.get(str(document.get("kind")), Study).from_json(document)  # type: ignore[attr-defined, no-any-return]


def traces(store: Store, owner: str) -> dict[str, str]:
    """Return the traces that a browser can choose: samples, its uploads, traces of its items.

    Returns
    -------
    dict
        Source, as in `trainyard.study.scenario.TraceSpec` -> title.
    """
    own_digests = store.index.owned_traces(owner)
    stored = {f"store:{one.digest}": one.name for one in store.traces()}
    titles_by_source = {f"sample:{name}": sample.title for name, sample in SAMPLES.items()}
    titles_by_source |= {
        source: name for source, name in stored.items() if source.partition(":")[2] in own_digests
    }
    for item in items(store, owner):
        document = item.kept.document
        base = dict(document.get("study", document)).get("base", {})
        source = dict(base).get("trace", {}).get("source", "")
        if isinstance(source, str) and (source in stored or source.startswith(MADE)):
            titles_by_source.setdefault(source, source_name(source, store))
    return titles_by_source


def recipe_id(recipe: Recipe) -> str:
    """Return the hash of a recipe; equal recipes have equal ids."""
    return hashlib.blake2b(recipe.canonical().encode(), digest_size=16).hexdigest()


def default_title(recipe: Recipe, store: Store | None = None) -> str:
    """Return a recipe's default title: policies, trace, and what varies or is asked.

    `store` knows the names of uploads.
    """
    study = recipe if isinstance(recipe, Study) else recipe.study
    source, names = source_name(study.base.trace.source, store), study.titles
    if isinstance(recipe, FromHere):
        return f"{names[recipe.policy]} on {source}, {branch_title(recipe)}"
    policies_on_source = f"{', '.join(names)} on {source}"
    if isinstance(recipe, Sweep):
        return f"{policies_on_source}, over {' and '.join(axis.title for axis in recipe.axes)}"
    if isinstance(recipe, Check):
        return f"{policies_on_source}, checked against the past"
    return (
        f"Fewest nodes for {policies_on_source}"
        if isinstance(recipe, SizeQuestion)
        else policies_on_source
    )


def _clean_line(text: str) -> str:
    """Return a text as one line without control characters."""
    return " ".join(_CONTROL.sub(" ", text).split())


def shelve(store: Store, owner: str, recipe: Recipe, keys: Sequence[str]) -> str:
    """Put a recipe at the front of a shelf; return its id.

    The name of a study becomes its name on the shelf, unless it has one there.

    Raises
    ------
    TrainyardError
        If the library cannot be written.
    """
    name, own = (
        (recipe.base.name, recipe.with_name("")) if isinstance(recipe, Study) else ("", recipe)
    )
    recipe_hash = recipe_id(own)
    store.index.shelve(
        owner,
        recipe_hash,
        own.to_json(),
        _clean_line(default_title(own, store)),
        keys,
        _clean_line(name)[:MAX_NAME_LENGTH],
    )
    return recipe_hash


def keep_study(
    store: Store,
    owner: str,
    study: Study,
    source: Source,
    results: Sequence[tuple[Scenario, RunResult]],
) -> str:
    """Store the results of a study, put it on a shelf, and return its id.

    Parameters
    ----------
    study : Study
        The study. Jobs from a file, or a part of a source, are stored too, because they may be
        missing later.
    source : Source
        Its jobs, before window and load.
    results : sequence of (Scenario, RunResult)
        Results of all its runs.

    Raises
    ------
    TrainyardError
        If the library cannot be written.
    """
    digest, spec = source.trace.digest, study.base.trace
    if not spec.source.startswith(READY) or source_digest(spec, store) != digest:
        spec = replace(
            spec, source=f"store:{store.put_trace(source.trace, source.account)}", fmt="", read=()
        )
    trace = apply_changes(source.trace, spec)
    # Shelved first, so that its runs are not deleted with an item of another owner.
    item_id = shelve(
        store,
        owner,
        replace(study, base=replace(study.base, trace=spec)),
        [scenario.key(digest) for scenario, _ in results],
    )
    for scenario, result in results:
        keep_result(store, scenario.key(digest), replace(scenario, trace=spec), result, trace)
    return item_id


def items(store: Store, owner: str, search: str = "") -> list[Item]:
    """Return the items on a shelf, last used first, that contain all words of `search`.

    Words may be in title, name, tags, kind or id.
    """
    words = search.casefold().split()
    matches = []
    for kept in store.index.shelf(owner):
        kind = str(kept.document.get("kind", "study"))
        text = " ".join(
            [kept.title, kept.name, *kept.tags, kind, KINDS.get(kind, ""), kept.study]
        ).casefold()
        if all(word in text for word in words):
            matches.append(
                Item(
                    kept.study,
                    kind,
                    kept.title,
                    kept.name,
                    kept.tags,
                    kept.used_s,
                    kept.runs,
                    kept.there,
                    kept,
                )
            )
    return matches


def item(store: Store, owner: str, id_or_name: str) -> Item:
    """Return the only item with a name, or with an id that begins with a text.

    Raises
    ------
    ParameterError
        If there is none, or more than one.
    """
    matches = [
        one
        for one in items(store, owner)
        if id_or_name and (one.id.startswith(id_or_name) or one.name == id_or_name)
    ]
    if not matches:
        raise ParameterError(
            f"No item of the library has the name or id '{id_or_name[:60]}'. See: python -m"
            " trainyard runs list."
        )
    if len(matches) > 1:
        raise ParameterError(
            f"{len(matches)} items of the library match '{id_or_name[:60]}':"
            f" {', '.join(one.id[:12] for one in matches[:4])}. Give more of the id."
        )
    return matches[0]


def label_item(
    store: Store,
    owner: str,
    study: str,
    *,
    name: str | None = None,
    tags: Iterable[str] | None = None,
) -> None:
    """Set name or tags of an item, None = as before; an empty name removes it.

    Raises
    ------
    ParameterError
        If the item does not exist, or a text is too long.
    """
    tidy = None if tags is None else list(dict.fromkeys(filter(None, map(_clean_line, tags))))
    if name is not None and len(name) > MAX_NAME_LENGTH:
        raise ParameterError(
            f"The name has {len(name)} characters; at most {MAX_NAME_LENGTH} fit. Shorten it."
        )
    if tidy is not None and (len(tidy) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in tidy)):
        raise ParameterError(
            f"At most {MAX_TAGS} tags of {MAX_TAG_CHARS} characters fit. Use fewer or shorter ones."
        )
    if not store.index.label(
        owner, study, name=None if name is None else _clean_line(name), tags=tidy
    ):
        raise ParameterError(f"{study[:12]} is no longer in this library. Run it again.")


def remove_item(store: Store, owner: str, study: str) -> int:
    """Remove an item from a shelf; return the number of deleted runs that no shelf needs.

    Raises
    ------
    TrainyardError
        If the library cannot be written.
    """
    return len(store.unshelve(owner, study))


BRIEF: Final = (
    "jct_mean_s",
    "jct_p95_s",
    "queue_mean_s",
    "makespan_s",
    "utilisation",
    "cost_held_per_job_usd",
    "wait_max_s",
)
"""Metrics of a run in lists and comparisons."""


def run_numbers_table(store: Store, recipe: Recipe) -> pd.DataFrame:
    """Return `policy`, `seed` and `BRIEF` of the stored runs of a recipe, one row per run.

    Of a sweep or search only the runs at its base settings.

    Raises
    ------
    TrainyardError
        If the trace was deleted.
    """
    rows = []
    for policy, scenarios in _base_scenarios(recipe).items():
        keys = {scenario_key(scenario, store): scenario.seed for scenario in scenarios}
        stored = store.numbers(keys)
        rows += [
            {"policy": policy, "seed": keys[key], **{name: stored[key].get(name) for name in BRIEF}}
            for key in keys
            if key in stored
        ]
    return pd.DataFrame(rows, columns=["policy", "seed", *BRIEF]).astype(
        dict.fromkeys(BRIEF, "float64")
    )


def _base_scenarios(recipe: Recipe) -> dict[str, Sequence[Scenario]]:
    """Return title -> scenarios, one per seed, at the base settings of a recipe."""
    study = recipe if isinstance(recipe, Study) else recipe.study
    names = study.titles
    if isinstance(recipe, FromHere):
        was = names[recipe.policy]
        return {was: (recipe.branch.was,), f"{was}, from here on": (recipe.branch.here,)}
    return {name: study.policy_scenarios(at) for at, name in enumerate(names)}


@dataclass(frozen=True, eq=False)
class ItemComparison:
    """A comparison of two items of a library.

    Parameters
    ----------
    changes : tuple of str
        Sentences on the differences from the first to the second.
    first, second : DataFrame
        See `run_numbers_table`.
    """

    changes: tuple[str, ...]
    first: pd.DataFrame
    second: pd.DataFrame

    def means(self) -> pd.DataFrame:
        """Return `policy`, `metric`, means `a` and `b` over runs, and their relative `change`."""
        sides = [
            frame.groupby("policy", sort=False)[list(BRIEF)].mean().stack()
            for frame in (self.first, self.second)
        ]
        both = pd.DataFrame({"a": sides[0], "b": sides[1]})
        order = {
            policy: at
            for at, policy in enumerate(
                dict.fromkeys([*self.first["policy"], *self.second["policy"]])
            )
        }
        both = both.reset_index(names=["policy", "metric"])
        both = both.sort_values(
            "policy", key=lambda names: names.map(order), kind="stable", ignore_index=True
        )
        return both.assign(change=(both["b"] / both["a"] - 1).where(both["a"] != 0))


def compare_items(store: Store, first: Item, second: Item) -> ItemComparison:
    """Return the changed settings and the numbers of the stored runs of two items.

    Raises
    ------
    TrainyardError
        If neither has stored runs, or a trace was deleted.
    """
    frames = [run_numbers_table(store, one.recipe()) for one in (first, second)]
    if frames[0].empty and frames[1].empty:
        raise StoreError("Neither has stored runs. Run them again.")
    return ItemComparison(changes(store, first, second), *frames)


def changes(store: Store, old: Item, new: Item) -> tuple[str, ...]:
    """Return sentences on the differences between the studies of two items.

    Raises
    ------
    TrainyardError
        If this version cannot read one of them.
    """
    studies = [
        recipe if isinstance(recipe, Study) else recipe.study
        for recipe in (old.recipe(), new.recipe())
    ]
    return tuple(study_changes(studies[0].with_name(""), studies[1].with_name(""), store))


def predecessor(shelf_items: Sequence[Item], at: int) -> Item | None:
    """Return the next older comparison with the title of the item at an index, or None.

    It is most often its origin. None also for other kinds of items.
    """
    item = shelf_items[at]
    return (
        next(
            (
                other
                for other in shelf_items[at + 1 :]
                if (other.kind, other.title) == (item.kind, item.title)
            ),
            None,
        )
        if item.kind == "study"
        else None
    )


def items_json(items: Sequence[Item]) -> list[dict[str, Any]]:
    """Return items as rows of plain values, for JSON."""
    return [
        json.loads(json.dumps({key: value for key, value in vars(one).items() if key != "kept"}))
        for one in items
    ]


class InUseError(TrainyardError):
    """Raised when another session runs the trace."""


class NotYoursError(TrainyardError):
    """Raised when another browser uploaded the trace."""


def delete_trace(digest: str, pool: WorkerPool, watcher: str, owner: str) -> int:
    """Delete a trace with its results, and the traces derived from it, see `relatives`.

    Parameters
    ----------
    digest : str
        Digest of the trace.
    pool : WorkerPool
        Its runs that only `watcher` waits for are stopped.
    watcher, owner : str
        Requesting session and browser.

    Returns
    -------
    int
        Number of deleted results.

    Raises
    ------
    NotYoursError
        If another browser uploaded it; a link allows using a trace, but not deleting it.
    InUseError
        If another session waits for a run of it; nothing is deleted then.

    Notes
    -----
    A trace that several browsers uploaded is deleted when the last of them deletes it.
    """
    store = pool.store
    family = {one for one in relatives(digest, store) if owner in store.index.owners(one)}
    if digest not in family:
        raise NotYoursError(
            "Another browser uploaded this trace, and only that browser can delete it. Choose"
            " another trace to stop using it."
        )
    alone = {one for one in family if store.index.owners(one) == {owner}}
    sources = {f"store:{one}" for one in alone}
    if set().union(*(pool.watchers(source) for source in sources)) - {watcher}:
        raise InUseError(
            "Another session is running this trace, so it was not deleted. Try again in a few"
            " minutes."
        )
    for source in sources:
        pool.stop(watcher, source)
    results = [key for source in sources for key in store.runs_of(source)]
    for one in family - alone:
        store.index.disown(owner, one)
    for one in alone:
        store.delete_trace(one)
    for key in results:
        store.delete(key)
    clear_cache()
    return len(results)


def relatives(digest: str, store: Store) -> set[str]:
    """Return a stored trace, the traces that it is a part of, and all parts of these."""
    kept = {about.digest: {about.digest, *about.account.get("of", ())} for about in store.traces()}
    family = {digest}.union(*(own for own in kept.values() if digest in own))
    return family.union(*(own for own in kept.values() if own & family))

"""What somebody has run: comparisons, sweeps and searches with their names and tags, found again,
set beside each other, and deleted without harm to others.
"""

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
from trainyard.results.differences import branch_title, differences, source_name
from trainyard.runs.pool import WorkerPool
from trainyard.runs.run import keep as keep_result
from trainyard.runs.run import key_of
from trainyard.store import Store, StoreError
from trainyard.store.index import ShelvedRecipe
from trainyard.study.branch import KIND as FROM_HERE
from trainyard.study.branch import FromHere
from trainyard.study.check import KIND as CHECK
from trainyard.study.check import Check
from trainyard.study.scenario import MADE, READY, Scenario
from trainyard.study.search import SizeQuestion
from trainyard.study.study import Study
from trainyard.study.sweep import Sweep
from trainyard.traces.samples import SAMPLES
from trainyard.traces.sources import Source, changed, forget, source_digest

Recipe = Study | Sweep | SizeQuestion | FromHere | Check
HERE: Final = "this-machine"
"""Owner of what the command line runs."""
MOST_NAME: Final = 120
MOST_TAGS: Final = 20
MOST_TAG: Final = 40
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
"""Kind of an item -> what a user calls it."""


@dataclass(frozen=True)
class Item:
    """Something on a shelf.

    Parameters
    ----------
    id : str
        Hash of its recipe.
    kind : str
        Key of `KINDS`: a comparison, a sweep, a search for the fewest nodes, a run that changes
        at an instant, or a check against the past.
    title, name : str
        What it is called by itself, and by its owner ("" = not).
    tags : tuple of str
        Of its owner.
    used_s : float, seconds
        When it was last run or changed, since the epoch.
    runs, there : int
        Runs that it needs, and those whose numbers are kept.
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
        """Return what was run.

        Raises
        ------
        TrainyardError
            If this version cannot read it any more.
        """
        return read(dict(self.kept.document))


def read(document: dict[str, Any]) -> Recipe:
    """Return the recipe in a document.

    Raises
    ------
    TrainyardError
        If it holds none.
    """
    return _KINDS.get(str(document.get("kind")), Study).from_json(document)  # type: ignore[attr-defined, no-any-return]


def traces(store: Store, owner: str) -> dict[str, str]:
    """Return the traces that a browser can choose from: samples, its uploads, and those of its
    runs.

    Returns
    -------
    dict
        Source, as in `trainyard.study.scenario.TraceSpec` -> title.
    """
    mine = store.index.owned(owner)
    kept = {f"store:{one.digest}": one.name for one in store.traces()}
    found = {f"sample:{name}": sample.title for name, sample in SAMPLES.items()}
    found |= {source: name for source, name in kept.items() if source.partition(":")[2] in mine}
    for item in items(store, owner):
        document = item.kept.document
        base = dict(document.get("study", document)).get("base", {})
        source = dict(base).get("trace", {}).get("source", "")
        if isinstance(source, str) and (source in kept or source.startswith(MADE)):
            found.setdefault(source, source_name(source, store))
    return found


def identity(recipe: Recipe) -> str:
    """Return the hash of a recipe: equal ones are one thing."""
    return hashlib.blake2b(recipe.canonical().encode(), digest_size=16).hexdigest()


def title(recipe: Recipe, store: Store | None = None) -> str:
    """Return what a recipe is called unless named; `store` knows the names of uploads."""
    study = recipe if isinstance(recipe, Study) else recipe.study
    source, names = source_name(study.base.trace.source, store), study.titles
    if isinstance(recipe, FromHere):
        return f"{names[recipe.policy]} on {source}, {branch_title(recipe)}"
    what = f"{', '.join(names)} on {source}"
    if isinstance(recipe, Sweep):
        return f"{what}, over {' and '.join(axis.title for axis in recipe.axes)}"
    if isinstance(recipe, Check):
        return f"{what}, checked against the past"
    return f"Fewest nodes for {what}" if isinstance(recipe, SizeQuestion) else what


def _line(text: str) -> str:
    """Return one line without what would command a terminal."""
    return " ".join(_CONTROL.sub(" ", text).split())


def shelve(store: Store, owner: str, recipe: Recipe, keys: Sequence[str]) -> str:
    """Put a recipe on a shelf, in front; return its id. A comparison is the same whatever it is
    called; its name becomes that on the shelf, unless it has one.

    Raises
    ------
    TrainyardError
        If the library cannot be written.
    """
    name, own = (recipe.base.name, recipe.named("")) if isinstance(recipe, Study) else ("", recipe)
    made = identity(own)
    store.index.shelve(
        owner, made, own.to_json(), _line(title(own, store)), keys, _line(name)[:MOST_NAME]
    )
    return made


def keep(
    store: Store,
    owner: str,
    study: Study,
    source: Source,
    results: Sequence[tuple[Scenario, RunResult]],
) -> str:
    """Keep the results of a comparison that was run, put it on a shelf, and return its id.

    Parameters
    ----------
    study : Study
        What was run; jobs from a file, or only some of a source's, are kept too, because they may
        be gone when somebody looks at the results.
    source : Source
        Its jobs, before window and load.
    results : sequence of (Scenario, RunResult)
        Of all its runs.

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
    trace = changed(source.trace, spec)
    # First on the shelf: what stands there is not deleted with what somebody else has of it.
    made = shelve(
        store,
        owner,
        replace(study, base=replace(study.base, trace=spec)),
        [scenario.key(digest) for scenario, _ in results],
    )
    for scenario, result in results:
        keep_result(store, scenario.key(digest), replace(scenario, trace=spec), result, trace)
    return made


def items(store: Store, owner: str, search: str = "") -> list[Item]:
    """Return what stands on a shelf, the last used first; `search` = words that title, name, tags
    or kind must contain.
    """
    words = search.casefold().split()
    found = []
    for kept in store.index.shelf(owner):
        kind = str(kept.document.get("kind", "study"))
        text = " ".join(
            [kept.title, kept.name, *kept.tags, kind, KINDS.get(kind, ""), kept.study]
        ).casefold()
        if all(word in text for word in words):
            found.append(
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
    return found


def item(store: Store, owner: str, mark: str) -> Item:
    """Return the one thing whose id begins so, or whose name is that.

    Raises
    ------
    ParameterError
        If there is none, or more than one.
    """
    found = [
        one for one in items(store, owner) if mark and (one.id.startswith(mark) or one.name == mark)
    ]
    if not found:
        raise ParameterError(
            f"Nothing in the library has the name or id '{mark[:60]}'. See: python -m trainyard"
            " runs list."
        )
    if len(found) > 1:
        raise ParameterError(
            f"{len(found)} things in the library match '{mark[:60]}':"
            f" {', '.join(one.id[:12] for one in found[:4])}. Give more of the id."
        )
    return found[0]


def label(
    store: Store,
    owner: str,
    study: str,
    *,
    name: str | None = None,
    tags: Iterable[str] | None = None,
) -> None:
    """Name or tag something; an empty name takes it away.

    Raises
    ------
    ParameterError
        If it is not there, or a text is too long.
    """
    tidy = None if tags is None else list(dict.fromkeys(filter(None, map(_line, tags))))
    if name is not None and len(name) > MOST_NAME:
        raise ParameterError(
            f"The name has {len(name)} characters; at most {MOST_NAME} are kept. Shorten it."
        )
    if tidy is not None and (len(tidy) > MOST_TAGS or any(len(tag) > MOST_TAG for tag in tidy)):
        raise ParameterError(
            f"At most {MOST_TAGS} tags of {MOST_TAG} characters are kept. Use fewer, or shorter"
            " ones."
        )
    if not store.index.label(owner, study, name=None if name is None else _line(name), tags=tidy):
        raise ParameterError(f"{study[:12]} is not in this library any more. Run it again.")


def remove(store: Store, owner: str, study: str) -> int:
    """Take something off a shelf; return how many runs were deleted, because nothing on anybody's
    shelf needs them any more.

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
"""Metrics that are told of a run in a list."""


def numbers(store: Store, recipe: Recipe) -> pd.DataFrame:
    """Return what is kept of the runs of a recipe, of a sweep or search those at its own settings:
    `policy`, `seed` and `BRIEF`, one row per run.

    Raises
    ------
    TrainyardError
        If the trace is not kept any more.
    """
    rows = []
    for policy, scenarios in _own(recipe).items():
        keys = {key_of(scenario, store): scenario.seed for scenario in scenarios}
        known = store.numbers(keys)
        rows += [
            {"policy": policy, "seed": keys[key], **{name: known[key].get(name) for name in BRIEF}}
            for key in keys
            if key in known
        ]
    return pd.DataFrame(rows, columns=["policy", "seed", *BRIEF]).astype(
        dict.fromkeys(BRIEF, "float64")
    )


def _own(recipe: Recipe) -> dict[str, Sequence[Scenario]]:
    """Return the runs at the settings of a recipe: what they are called -> one per seed."""
    study = recipe if isinstance(recipe, Study) else recipe.study
    names = study.titles
    if isinstance(recipe, FromHere):
        was = names[recipe.policy]
        return {was: (recipe.branch.was,), f"{was}, from here on": (recipe.branch.here,)}
    return {name: study.repeated(at) for at, name in enumerate(names)}


@dataclass(frozen=True, eq=False)
class Beside:
    """Two things of a library beside each other.

    Parameters
    ----------
    changes : tuple of str
        What differs from the first to the second, in words.
    first, second : DataFrame
        See `numbers`.
    """

    changes: tuple[str, ...]
    first: pd.DataFrame
    second: pd.DataFrame

    def means(self) -> pd.DataFrame:
        """Return one row per policy and metric: `policy`, `metric`, the means over the runs of each
        as `a` and `b`, and `change`, a share of `a`.
        """
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


def beside(store: Store, first: Item, second: Item) -> Beside:
    """Return two things beside each other.

    Raises
    ------
    TrainyardError
        If no run of either is kept any more, or a trace is not.
    """
    frames = [numbers(store, one.recipe()) for one in (first, second)]
    if frames[0].empty and frames[1].empty:
        raise StoreError("No run of either is kept any more. Run them again.")
    return Beside(changes(store, first, second), *frames)


def changes(store: Store, old: Item, new: Item) -> tuple[str, ...]:
    """Return what differs from one thing to another, in words; of sweeps and searches what differs
    in the comparison that they vary.

    Raises
    ------
    TrainyardError
        If this version cannot read one of them any more.
    """
    studies = [
        recipe if isinstance(recipe, Study) else recipe.study
        for recipe in (old.recipe(), new.recipe())
    ]
    return tuple(differences(studies[0].named(""), studies[1].named(""), store))


def predecessor(found: Sequence[Item], at: int) -> Item | None:
    """Return the next comparison of a list with the same title as this one: most often what it was
    made from.
    """
    one = found[at]
    return (
        next(
            (
                other
                for other in found[at + 1 :]
                if (other.kind, other.title) == (one.kind, one.title)
            ),
            None,
        )
        if one.kind == "study"
        else None
    )


def listing(found: Sequence[Item]) -> list[dict[str, Any]]:
    """Return rows of plain values, for JSON."""
    return [
        json.loads(json.dumps({key: value for key, value in vars(one).items() if key != "kept"}))
        for one in found
    ]


class InUseError(TrainyardError):
    """Somebody else is running the trace."""


class NotYoursError(TrainyardError):
    """The trace was uploaded by somebody else."""


def delete_trace(digest: str, pool: WorkerPool, watcher: str, owner: str) -> int:
    """Delete a kept trace with its results, on the disk and in memory, and with the traces that
    hold the same jobs, see `relatives`.

    Parameters
    ----------
    digest : str
        Of the trace.
    pool : WorkerPool
        Runs of it that `watcher` alone waits for are stopped.
    watcher, owner : str
        Who asks: the session, and the browser.

    Returns
    -------
    int
        How many results were deleted.

    Raises
    ------
    NotYoursError
        If another browser uploaded it; whoever opened a link may use a trace, but not delete it.
    InUseError
        If another session, which uploaded the same file or opened a link, waits for a run of it;
        nothing is deleted then.

    Notes
    -----
    A trace that several browsers uploaded is deleted with the last of them.
    """
    store = pool.store
    family = {one for one in relatives(digest, store) if owner in store.index.owners(one)}
    if digest not in family:
        raise NotYoursError(
            "This trace was uploaded in another browser, and only that one can delete it. Choose"
            " another trace to use it no longer."
        )
    alone = {one for one in family if store.index.owners(one) == {owner}}
    sources = {f"store:{one}" for one in alone}
    if set().union(*(pool.watchers(source) for source in sources)) - {watcher}:
        raise InUseError(
            "Somebody else is running this trace, so it is kept until those runs are over. Delete"
            " it again in a few minutes."
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
    forget()
    return len(results)


def relatives(digest: str, store: Store) -> set[str]:
    """Return a kept trace with those from which it came because jobs were left out, and those that
    came from any of them in that way.
    """
    kept = {about.digest: {about.digest, *about.account.get("of", ())} for about in store.traces()}
    family = {digest}.union(*(own for own in kept.values() if digest in own))
    return family.union(*(own for own in kept.values() if own & family))

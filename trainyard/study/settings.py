"""``--set path=value``: changes single values of a scenario or study written as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from jobtraces.generate import workload
from sim.errors import ParameterError
from sim.params import Spec
from trainyard.study import catalog
from trainyard.study.document import number
from trainyard.study.scenario import MADE, Scenario

_SPECS: Final = ("allocator", "perf", "estimator")
_STUDY: Final = ("base", "allocators", "baseline", "repeats")


def with_settings(
    document: Mapping[str, Any], settings: Sequence[str], told: str = "--set"
) -> dict[str, Any]:
    """Return a document with values replaced; whether they make sense is checked when the scenario
    is built.

    Parameters
    ----------
    document : mapping
        `Scenario.to_json` or `Study.to_json`.
    settings : sequence of str
        Each ``path=value``, e.g. ``faults.mtbf_h=500``, ``seed=3``, ``estimator=noisy:sigma=0.3``,
        ``cluster=16x8:v100``, ``cluster.groups.0.count=20``, ``trace.source.per_h=12`` for a made
        workload. In a study a path into the scenario needs no prefix, and ``allocator.mix=yes``
        changes every allocator.
    told : str
        What the user called them, for what is told of a mistake.

    Raises
    ------
    ParameterError
        If a setting is not of that form or leads nowhere.
    """
    changed: dict[str, Any] = deepcopy(dict(document))
    for setting in settings:
        path, equals, text = setting.partition("=")
        keys = catalog.renamed_path(path.strip()).split(".")
        if not equals or not all(keys):
            raise ParameterError(
                f"{told} {setting}: this is not of the form path=value, e.g. faults.mtbf_h=500."
            )
        for root, rest in _places(changed, keys):
            _put(root, rest, _value(text.strip()), f"{told} {setting}")
    return changed


def seeded(scenario: Scenario, seed: int) -> Scenario:
    """Return a scenario with another seed, of its jobs too if they are made with one."""
    source = scenario.trace.source
    made = source.startswith(MADE) and hasattr(workload(source.removeprefix(MADE)), "seed")
    jobs = [f"trace.source.seed={seed}"] if made else []
    return Scenario.from_json(with_settings(scenario.to_json(), [f"seed={seed}", *jobs]))


def _places(document: dict[str, Any], keys: list[str]) -> list[tuple[Any, list[str]]]:
    if "allocators" not in document or keys[0] in _STUDY:
        return [(document, keys)]
    if keys[0] == "allocator":
        return [
            (document, ["allocators", str(at), *keys[1:]])
            for at in range(len(document["allocators"]))
        ]
    return [(document["base"], keys)]


def _put(root: Any, keys: list[str], value: Any, setting: str) -> None:
    node = root
    for key in keys[:-1]:
        node = _step(node, key, setting)
    last = keys[-1]
    if isinstance(node, list):
        node[_index(node, last, setting)] = value
    elif isinstance(node, dict):
        home = _params_of(node, last)
        home |= {last: value} if home is node else catalog.renamed(node["name"], {last: value})
    else:
        raise ParameterError(
            f"{setting}: {keys[-2] if len(keys) > 1 else last} is a single value and has no parts."
        )


def _step(node: Any, key: str, setting: str) -> Any:
    if isinstance(node, list):
        at = _index(node, key, setting)
        node[at] = _opened(key, node[at])
        return node[at]
    if not isinstance(node, dict):
        raise ParameterError(f"{setting}: there is nothing to change inside {key}.")
    home = _params_of(node, key)
    if key not in home:
        raise ParameterError(
            f"{setting}: there is no '{key}'. There are: {', '.join(map(str, home)) or 'none'}."
        )
    home[key] = _opened(key, home[key])
    return home[key]


def _opened(key: str, value: Any) -> Any:
    """Return the table behind an allocator, a model or a made workload that is written as text."""
    if key == "source" and isinstance(value, str) and value.startswith(MADE):
        return Spec.parse(value.removeprefix(MADE)).to_json()
    return (
        Spec.parse(value).to_json()
        if isinstance(value, str) and (key in _SPECS or key.isdigit())
        else value
    )


def _params_of(node: dict[str, Any], key: str) -> dict[str, Any]:
    """Return where a key belongs: a table of name and params keeps all but these two in params."""
    if set(node) <= {"name", "params"} and "name" in node and key not in ("name", "params"):
        inner = catalog.renamed(node["name"], node.get("params", {}))
        node["params"] = inner
        return inner
    return node


def _index(node: list[Any], key: str, setting: str) -> int:
    at = number(f"{setting}: {key}", key)
    if at != int(at) or not 0 <= at < len(node):
        raise ParameterError(
            f"{setting}: there are {len(node)} entries, numbered from 0; {key} is none of them."
        )
    return int(at)


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text

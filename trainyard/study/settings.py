"""Changes single values of a scenario or study document, as ``--set path=value`` does."""

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
    document: Mapping[str, Any], settings: Sequence[str], option: str = "--set"
) -> dict[str, Any]:
    """Return a document with values replaced, not yet validated.

    Parameters
    ----------
    document : mapping
        `Scenario.to_json` or `Study.to_json`.
    settings : sequence of str
        Each ``path=value``, e.g. ``faults.mtbf_h=500``, ``seed=3``, ``estimator=noisy:sigma=0.3``,
        ``cluster=16x8:v100``, ``cluster.groups.0.count=20``, ``trace.source.per_h=12`` for a made
        workload. In a study a path into the scenario needs no prefix, and ``allocator.mix=yes``
        changes every allocator.
    option : str
        Name of the option, for error messages.

    Raises
    ------
    ParameterError
        If a setting does not have this form, or its path does not exist.
    """
    changed: dict[str, Any] = deepcopy(dict(document))
    for setting in settings:
        path, equals, text = setting.partition("=")
        keys = catalog.current_path(path.strip()).split(".")
        if not equals or not all(keys):
            raise ParameterError(
                f"{option} {setting}: the form is path=value, e.g. faults.mtbf_h=500."
            )
        for root, rest in _targets(changed, keys):
            _set_value(root, rest, parse_value(text.strip()), f"{option} {setting}")
    return changed


def with_seed(scenario: Scenario, seed: int) -> Scenario:
    """Return a scenario with another seed, also for the jobs if they are generated."""
    source = scenario.trace.source
    has_seed = source.startswith(MADE) and hasattr(workload(source.removeprefix(MADE)), "seed")
    trace_settings = [f"trace.source.seed={seed}"] if has_seed else []
    return Scenario.from_json(with_settings(scenario.to_json(), [f"seed={seed}", *trace_settings]))


def _targets(document: dict[str, Any], keys: list[str]) -> list[tuple[Any, list[str]]]:
    """Return (table, keys inside it) for each table of a study or scenario that a path means.

    In a study, a path into `allocator` means every policy.
    """
    if "allocators" not in document or keys[0] in _STUDY:
        return [(document, keys)]
    if keys[0] == "allocator":
        return [
            (document, ["allocators", str(at), *keys[1:]])
            for at in range(len(document["allocators"]))
        ]
    return [(document["base"], keys)]


def _set_value(root: Any, keys: list[str], value: Any, setting: str) -> None:
    """Set a value at a path of keys in a document, in place.

    Raises ParameterError if the path does not exist.
    """
    node = root
    for key in keys[:-1]:
        node = _enter(node, key, setting)
    last = keys[-1]
    if isinstance(node, list):
        node[_list_index(node, last, setting)] = value
    elif isinstance(node, dict):
        home = _params_of(node, last)
        home |= (
            {last: value} if home is node else catalog.current_params(node["name"], {last: value})
        )
    else:
        raise ParameterError(
            f"{setting}: {keys[-2] if len(keys) > 1 else last} is a single value and has no parts."
        )


def _enter(node: Any, key: str, setting: str) -> Any:
    """Return the table or list under a key; replace a policy or model written as text.

    Raises ParameterError if there is no such key.
    """
    if isinstance(node, list):
        at = _list_index(node, key, setting)
        node[at] = _open_text(key, node[at])
        return node[at]
    if not isinstance(node, dict):
        raise ParameterError(f"{setting}: there is nothing to change inside {key}.")
    home = _params_of(node, key)
    if key not in home:
        raise ParameterError(
            f"{setting}: there is no '{key}'. There are: {', '.join(map(str, home)) or 'none'}."
        )
    home[key] = _open_text(key, home[key])
    return home[key]


def _open_text(key: str, value: Any) -> Any:
    """Return the table of a policy, model or generated trace if written as text; else `value`."""
    if key == "source" and isinstance(value, str) and value.startswith(MADE):
        return Spec.parse(value.removeprefix(MADE)).to_json()
    return (
        Spec.parse(value).to_json()
        if isinstance(value, str) and (key in _SPECS or key.isdigit())
        else value
    )


def _params_of(node: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the table that holds a key: ``params`` of a policy, or the table itself.

    Former names in ``params`` are replaced in place.
    """
    if set(node) <= {"name", "params"} and "name" in node and key not in ("name", "params"):
        inner = catalog.current_params(node["name"], node.get("params", {}))
        node["params"] = inner
        return inner
    return node


def _list_index(node: list[Any], key: str, setting: str) -> int:
    """Return a key as an index of a list; raise ParameterError if it is out of range."""
    at = number(f"{setting}: {key}", key)
    if at != int(at) or not 0 <= at < len(node):
        raise ParameterError(
            f"{setting}: there are {len(node)} entries, numbered from 0; {key} is out of range."
        )
    return int(at)


def parse_value(text: str) -> Any:
    """Return a text as a JSON value, or as text if it is not JSON."""
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text

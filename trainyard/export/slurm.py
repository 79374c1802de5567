"""Writes a changed Slurm configuration as a patch: ``slurm.conf`` lines and commands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from allocators.sites.slurm.accounts import Associations, read_associations
from allocators.sites.slurm.config import logical_lines, read_conf
from allocators.sites.slurm.policy import DEFAULTS
from allocators.sites.slurm.sacctmgr import Command, change_commands, sacctmgr_script
from allocators.sites.slurm.site import CONFIG_KEYS, find_backfill_depth
from sim.errors import ParameterError
from sim.params import Spec
from trainyard.export.caveats import ExportRun, comments
from trainyard.study import catalog
from trainyard.study.check import with_values

SAYS: Final = frozenset({"conf", "accounts", "qos", *CONFIG_KEYS})
"""Parameters of the policy that a patch can express."""
_OPTIONS: Final = "SchedulerParameters"
_BASIC, _MULTIFACTOR = "PriorityType=priority/basic", "PriorityType=priority/multifactor"
_PARTS: Final = ("nodename", "partitionname", "include")
_DELETED: Final = re.compile(r"^# delete line (\d+):", re.MULTILINE)
_RUN: Final = re.compile(r"^# (sacctmgr -i .*)", re.MULTILINE)
_RESTART: Final = {
    "selecttype": "SelectType",
    "prioritytype": "PriorityType",
    "schedulertype": "SchedulerType",
    "topologyplugin": "TopologyPlugin",
    "nodename": "NodeName",
}
_WEIGHTS: Final = tuple(
    f"PriorityWeight{name}" for name in ("Age", "Assoc", "Fairshare", "JobSize", "Partition", "QOS")
)


def nearest(after: Spec, before: Spec) -> tuple[str, Spec | None]:
    """Return a sentence on the Slurm setting nearest to another policy, and that setting.

    Parameters
    ----------
    after : Spec
        The policy.
    before : Spec
        Slurm in force, with the text of ``slurm.conf``.

    Returns
    -------
    str
        Sentence that names the setting.
    Spec or None
        That setting as a policy to simulate; None = there is none.
    """
    name = catalog.allocator(after).title
    if after.name not in SETTINGS:
        return f"Slurm cannot run {name}, and none of its settings comes near it.", None
    words, make = SETTINGS[after.name]
    setting = make(before)
    changed = dict(sorted(set(setting.params) - set(before.params)))
    if not changed:
        return f"Slurm cannot run {name}, but already has the nearest setting: {words}.", None
    line = _BASIC if make is _order_by_submission else _MULTIFACTOR
    edits = [f"a copy of slurm.conf with {line}"] if changed.pop("conf", "") else []
    edits += [str(Spec.of(setting.name, **changed)).partition(":")[2]] if changed else []
    return (
        f"Slurm cannot run {name}. The nearest setting is {words}: give"
        f" {' and '.join(edits)} to slurm as another policy, then export that.",
        setting,
    )


def _order_by_submission(before: Spec) -> Spec:
    """Return Slurm with priority/basic, which orders jobs by submission; unchanged if set."""
    if not read_conf(conf_text(before)).by_priority:
        return before
    return with_values(before, {"conf": _set_line(_text_parameter(before, "conf"), _BASIC)})


def _plan_few_jobs(before: Spec) -> Spec:
    """Return Slurm with backfill plans for the first 10 jobs only."""
    return with_values(before, {"bf_max_job_test": 10})


def _order_by_size(before: Spec) -> Spec:
    """Return Slurm with a weight that puts small jobs first above all other weights."""
    weight = _dominant_weight(before, "PriorityWeightJobSize")
    return _with_weights(before, {"favor_small": True, "weight_size": weight})


def _order_by_usage(before: Spec) -> Spec:
    """Return Slurm with fair share of a 1 h half-life above all other weights."""
    weight = _dominant_weight(before, "PriorityWeightFairshare")
    return _with_weights(before, {"half_life_h": 1.0, "weight_fairshare": weight})


def _with_weights(before: Spec, values: dict[str, object]) -> Spec:
    """Return Slurm with these parameters, and with multifactor priority if it lacks it."""
    if not read_conf(conf_text(before)).by_priority:
        values = values | {"conf": _set_line(_text_parameter(before, "conf"), _MULTIFACTOR)}
    return with_values(before, values)


def _dominant_weight(before: Spec, own: str) -> int:
    """Return 20 times the sum of the other weights, from 20,000 to 4e9.

    `own` = the weight to set. The result never equals a default, because a default parameter does
    not override the file.
    """
    conf = read_conf(conf_text(before))
    others = sum(conf.number(key, 0) for key in _WEIGHTS if key != own)
    return int(min(20 * max(others, 1000), 4e9))


_BY_SIZE: Final = "favor_small with a weight_size above all other weights, which orders by size"
SETTINGS: Final[Mapping[str, tuple[str, Callable[[Spec], Spec]]]] = {
    "fifo": (f"{_BASIC}, which orders by submission", _order_by_submission),
    "easy": (
        "bf_max_job_test=10, which plans for the first jobs of the queue only",
        _plan_few_jobs,
    ),
    "sjf": (_BY_SIZE, _order_by_size),
    "srtf": (_BY_SIZE, _order_by_size),
    "las": (
        "a half_life_h of an hour with a weight_fairshare above all other weights",
        _order_by_usage,
    ),
}
"""Policy -> nearest setting of Slurm: description, and function that applies it."""


def patch(before: Spec, after: Spec, caveats: Sequence[str]) -> str:
    """Return the lines and commands that turn one Slurm configuration into another.

    Parameters
    ----------
    before, after : Spec
        Slurm in force and as simulated; both with the text of ``slurm.conf``. Parameters that
        replace a key of the file are written into it.
    caveats : sequence of str
        Comments for the top of the patch.

    Returns
    -------
    str
        Lines for ``slurm.conf`` with the old ones as comments. Lines to be deleted and commands are
        comments too.

    Raises
    ------
    ParameterError
        If both are equal, or the output of ``sacctmgr`` cannot be read.
    """
    old, new = _lines_by_key(conf_text(before)), _lines_by_key(conf_text(after))
    changed = [key for key, (_, text) in new.items() if key not in old or old[key][1] != text]
    removed = [key for key in old if key not in new]
    to_run = change_commands(_associations(before), _associations(after))
    if _is_same_configuration(before, after):
        raise ParameterError("Both configurations are equal, so there is nothing to export.")
    parts = [
        comments(
            [*caveats, *_apply_instructions({key.split("=")[0] for key in (*changed, *removed)})]
        )
    ]
    for key in changed:
        was = f"line {old[key][0]}: {old[key][1]}" if key in old else "new"
        parts.append(f"{comments([was])}{new[key][1]}\n")
    parts += [comments([f"delete line {old[key][0]}: {old[key][1]}"]) for key in removed]
    if to_run:
        command_lines = ["Run as an administrator of the accounting:", *_command_lines(to_run)]
        parts.append(comments(command_lines))
    script = "".join(parts)
    if not _is_same_configuration(again := apply_patch(before, script), after):
        if _associations(again).bare != _associations(after).bare:
            raise ParameterError(
                "sacctmgr commands cannot turn the old accounts into the new ones: a name or"
                " setting cannot be written in them. Change the accounts by hand."
            )
        raise ParameterError(
            "Changed lines alone cannot produce the new slurm.conf, because the order of node and"
            " partition lines matters. Use the whole new file."
        )
    return script


def _command_lines(to_run: Sequence[Command]) -> Iterator[str]:
    """Yield the sacctmgr commands as comment lines, each after the value it replaces."""
    for one in to_run:
        if one.was:
            yield f"was: {one.was}"
        yield f"sacctmgr -i {one.text}"


def _associations(spec: Spec) -> Associations:
    """Return the accounts and qualities of service in the parameters of a policy."""
    return read_associations(_text_parameter(spec, "accounts"), _text_parameter(spec, "qos"))


def apply_patch(before: Spec, patch: str) -> Spec:
    """Return the policy after a patch: lines of slurm.conf replaced or deleted, commands run.

    `sacctmgr` commands in the patch become part of the parameter "accounts".

    Parameters that override the file are written into it first.
    """
    conf = conf_text(before).splitlines()
    for number in sorted(map(int, _DELETED.findall(patch)), reverse=True):
        del conf[number - 1 : _logical_line_end(conf, number - 1)]
    text = "\n".join(conf) + "\n"
    for line in logical_lines(patch):
        text = _set_line(text, line.text)
    own = {key: value for key, value in before.params if key not in CONFIG_KEYS}
    if commands := "".join(f"{one}\n" for one in _RUN.findall(patch)):
        own |= {"accounts": f"{sacctmgr_script(_associations(before))}{commands}", "qos": ""}
    return Spec.of(before.name, **(own | {"conf": text}))


def _is_same_configuration(one: Spec, other: Spec) -> bool:
    """Return True if slurm.conf and accounts are equal, nodes and partitions in any order."""
    first, second = (
        replace(
            config,
            nodes=tuple(sorted(config.nodes, key=lambda node: node.name)),
            partitions=tuple(sorted(config.partitions, key=lambda part: part.name)),
            where={},
            findings=(),
        )
        for config in (read_conf(conf_text(spec)) for spec in (one, other))
    )
    return first == second and _associations(one).bare == _associations(other).bare


def conf_text(spec: Spec) -> str:
    """Return the ``slurm.conf`` of a policy, with parameters that override it written into it."""
    conf, given = _text_parameter(spec, "conf"), dict(spec.params)
    own = {
        key: _conf_value(name, given[name])
        for name, (key, _) in CONFIG_KEYS.items()
        if name in given and given[name] != DEFAULTS[name]
    }
    for key, value in own.items():
        if key[0].isupper():
            conf = _set_line(conf, f"{key}={value}")
    options = {key: value for key, value in own.items() if key[0].islower()}
    if options:
        old = next(
            (text for key, (_, text) in _lines_by_key(conf).items() if key == _OPTIONS.lower()), ""
        )
        conf = _set_line(
            conf, f"{_OPTIONS}={_merge_options(old.partition('=')[2].lstrip('='), options)}"
        )
    read_conf(conf)
    return conf


def _text_parameter(spec: Spec, name: str) -> str:
    return str(dict(spec.params).get(name, ""))


def _conf_value(name: str, value: object) -> str:
    """Return a parameter's value as in ``slurm.conf``: YES, minutes, days-hh:mm:ss, number."""
    if name == "favor_small":
        return "YES" if value else "NO"
    if name == "backfill":
        return "sched/backfill" if value else "sched/builtin"
    number = float(str(value))
    if name == "bf_window_h":
        return f"{60 * number:.0f}"
    if name.endswith("_h"):
        minutes, seconds = divmod(round(3600 * number), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours // 24}-{hours % 24:02}:{minutes:02}:{seconds:02}"
    return f"{number:g}" if number % 1 else f"{number:.0f}"


def _merge_options(options: str, new: Mapping[str, str]) -> str:
    """Return comma-separated options with new values replaced in place or appended."""
    left, parts = dict(new), []
    for part in options.split(","):
        key = part.partition("=")[0].strip()
        name = {"max_job_bf": "bf_max_job_test"}.get(key.lower(), key.lower())
        if name in left:
            parts.append(f"{key}={left.pop(name)}")
        elif part.strip():
            parts.append(part.strip())
    return ",".join([*parts, *(f"{key}={value}" for key, value in left.items())])


def _lines_by_key(conf: str) -> dict[str, tuple[int, str]]:
    """Return key -> (line number, text) of a ``slurm.conf``, the last line of each key.

    Repeated node, partition and include lines have their text as key.
    """
    named = [(_line_key(line.text), line) for line in logical_lines(conf)]
    times = Counter(key for key, _ in named)
    return {
        line.text.lower() if times[key] > 1 and key.startswith(_PARTS) else key: (
            line.number,
            line.text,
        )
        for key, line in named
    }


def _line_key(text: str) -> str:
    """Return the key of a line in lower case; for nodes and partitions with the name."""
    first = text.split(maxsplit=1)[0].lower()
    return first if first.startswith(_PARTS) else text.partition("=")[0].strip().lower()


def _set_line(conf: str, text: str) -> str:
    """Return a ``slurm.conf`` with a line set: replaced by key, or inserted.

    A new line is inserted after the last of its kind, or before nodes and partitions.
    """
    raw = conf.splitlines()
    old_line = next(
        (line for key, line in _lines_by_key(conf).items() if key == _line_key(text)), None
    )
    parts = [line for line in logical_lines(conf) if _line_key(line.text).startswith(_PARTS[:2])]
    same_kind = [line for line in parts if _keyword(line.text) == _keyword(text)]
    if old_line is not None:
        raw[old_line[0] - 1 : _logical_line_end(raw, old_line[0] - 1)] = [text]
    elif same_kind:
        raw.insert(_logical_line_end(raw, same_kind[-1].number - 1), text)
    else:
        raw.insert(parts[0].number - 1 if parts else len(raw), text)
    return "\n".join(raw) + "\n"


def _keyword(text: str) -> str:
    return text.partition("=")[0].strip().lower()


def _logical_line_end(raw: Sequence[str], first: int) -> int:
    """Return the index after a line and its continuations with backslashes."""
    last = first
    while raw[last].rstrip().endswith("\\"):
        last += 1
    return last + 1


def load(before: Sequence[ExportRun], after: Sequence[ExportRun]) -> list[str]:
    """Return one comment: test with sdiag, and the expected change of backfill depth if known.

    Parameters
    ----------
    before, after : sequence of ExportRun
        Repeats under the configuration in force and under the new one.
    """
    look = "Test with sdiag before and after: mean backfill cycle, depth"
    old, new = (
        [depth for one in runs if (depth := find_backfill_depth(one.remarks)) is not None]
        for runs in (before, after)
    )
    if not (old and new):
        return [f"{look}."]
    was, now = sum(old) / len(old), sum(new) / len(new)
    return [
        f"{look}; expect {100 * (now / was - 1):+.0f} % tested jobs ({was:,.1f} -> {now:,.1f} per"
        " cycle, simulated)."
    ]


def _apply_instructions(keys: set[str]) -> Iterator[str]:
    """Yield how to apply a patch that changes these keys: restart or reconfigure.

    Nothing without keys.
    """
    if not keys:
        return
    restart = [name for key, name in _RESTART.items() if key in keys]
    yield (
        f"To apply: change slurm.conf on all hosts, then restart slurmctld ({', '.join(restart)}"
        " takes effect at a restart only). Running jobs continue."
        if restart
        else "To apply: change slurm.conf on all hosts, then scontrol reconfigure. Limits"
        " apply at once; running jobs continue."
    )

"""A changed configuration of Slurm as a patch: the lines of ``slurm.conf`` that differ, and the
commands for accounts, users and qualities of service.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from allocators.sites.slurm.accounts import Associations, read_associations
from allocators.sites.slurm.commands import Command, commands, script
from allocators.sites.slurm.config import lines, read_conf
from allocators.sites.slurm.policy import DEFAULTS
from allocators.sites.slurm.site import IN_FILE, depth_in
from sim.errors import ParameterError
from sim.params import Spec
from trainyard.export.caveats import ExportRun, comments
from trainyard.study import catalog
from trainyard.study.check import with_values

SAYS: Final = frozenset({"conf", "accounts", "qos", *IN_FILE})
"""Parameters of the policy that a patch can say."""
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
    """Return the setting of Slurm that is nearest to a policy that Slurm does not have.

    Parameters
    ----------
    after : Spec
        The policy.
    before : Spec
        Slurm as it is in force, with the text of ``slurm.conf``.

    Returns
    -------
    str
        In words.
    Spec or None
        That setting, to be simulated instead; None = there is none.
    """
    name = catalog.allocator(after).title
    if after.name not in SETTINGS:
        return f"Slurm cannot run {name}, and none of its settings is near to it.", None
    words, make = SETTINGS[after.name]
    made = make(before)
    changed = dict(sorted(set(made.params) - set(before.params)))
    if not changed:
        return f"Slurm cannot run {name}, but is set to what is nearest already: {words}.", None
    line = _BASIC if make is _by_submission else _MULTIFACTOR
    what = [f"a copy of slurm.conf with {line}"] if changed.pop("conf", "") else []
    what += [str(Spec.of(made.name, **changed)).partition(":")[2]] if changed else []
    return (
        f"Slurm cannot run {name}. The nearest setting is {words}: give"
        f" {' and '.join(what)} to slurm as another policy, and take that home.",
        made,
    )


def _by_submission(before: Spec) -> Spec:
    if not read_conf(written(before)).by_priority:
        return before
    return with_values(before, {"conf": _replaced(_text(before, "conf"), _BASIC)})


def _first_plans(before: Spec) -> Spec:
    return with_values(before, {"bf_max_job_test": 10})


def _small_first(before: Spec) -> Spec:
    weight = _above(before, "PriorityWeightJobSize")
    return _weighed(before, {"favor_small": True, "weight_size": weight})


def _least_served_first(before: Spec) -> Spec:
    weight = _above(before, "PriorityWeightFairshare")
    return _weighed(before, {"half_life_h": 1.0, "weight_fairshare": weight})


def _weighed(before: Spec, values: dict[str, object]) -> Spec:
    """Set weights, and see to it that they count."""
    if not read_conf(written(before)).by_priority:
        values = values | {"conf": _replaced(_text(before, "conf"), _MULTIFACTOR)}
    return with_values(before, values)


def _above(before: Spec, own: str) -> int:
    """Return a weight that outweighs all others of a configuration, and is no default: those would
    not go before the file.
    """
    conf = read_conf(written(before))
    others = sum(conf.number(key, 0) for key in _WEIGHTS if key != own)
    return int(min(20 * max(others, 1000), 4e9))


_BY_SIZE: Final = "favor_small with a weight_size above all other weights, which goes by size"
SETTINGS: Final[Mapping[str, tuple[str, Callable[[Spec], Spec]]]] = {
    "fifo": (f"{_BASIC}, which goes by submission", _by_submission),
    "easy": (
        "bf_max_job_test=10, which plans for the first jobs of the queue only",
        _first_plans,
    ),
    "sjf": (_BY_SIZE, _small_first),
    "srtf": (_BY_SIZE, _small_first),
    "las": (
        "a half_life_h of an hour with a weight_fairshare above all other weights",
        _least_served_first,
    ),
}
"""Policy -> the setting of Slurm that is nearest to it, in words and made."""


def patch(before: Spec, after: Spec, caveats: Sequence[str]) -> str:
    """Return what has to change for one configuration to become another.

    Parameters
    ----------
    before, after : Spec
        The policy as it is in force and as it was simulated; both with the text of ``slurm.conf``.
        Parameters that stand for a key of the file are written into it.
    caveats : sequence of str
        What the patch rests on; comments at its top.

    Returns
    -------
    str
        Lines for ``slurm.conf`` with the old ones as comments. Lines to be deleted and commands are
        comments too.

    Raises
    ------
    ParameterError
        If both say the same, or what ``sacctmgr`` prints cannot be read.
    """
    old, new = _keyed(written(before)), _keyed(written(after))
    changed = [key for key, (_, text) in new.items() if key not in old or old[key][1] != text]
    gone = [key for key in old if key not in new]
    to_run = commands(_people(before), _people(after))
    if _is(before, after):
        raise ParameterError("Both configurations say the same, so there is nothing to take home.")
    parts = [comments([*caveats, *_advice({key.split("=")[0] for key in (*changed, *gone)})])]
    for key in changed:
        was = f"line {old[key][0]}: {old[key][1]}" if key in old else "new"
        parts.append(f"{comments([was])}{new[key][1]}\n")
    parts += [comments([f"delete line {old[key][0]}: {old[key][1]}"]) for key in gone]
    if to_run:
        told = ["Run as an administrator of the accounting:", *_told(to_run)]
        parts.append(comments(told))
    made = "".join(parts)
    if not _is(again := apply(before, made), after):
        if _people(again).bare != _people(after).bare:
            raise ParameterError(
                "The commands of sacctmgr do not make the new accounts of the old ones: a name or a"
                " setting cannot be written as one. Change the accounting by hand."
            )
        raise ParameterError(
            "The lines that differ do not make the new slurm.conf of the old one, because the"
            " order of those of nodes and partitions counts. Take the whole new file home."
        )
    return made


def _told(to_run: Sequence[Command]) -> Iterator[str]:
    for one in to_run:
        if one.was:
            yield f"was: {one.was}"
        yield f"sacctmgr -i {one.text}"


def _people(spec: Spec) -> Associations:
    return read_associations(_text(spec, "accounts"), _text(spec, "qos"))


def apply(before: Spec, patch: str) -> Spec:
    """Return a policy whose files a patch has changed: lines in the places of the old ones, lines
    deleted, commands run. Parameters that go before the file are written into it first.
    """
    conf = written(before).splitlines()
    for number in sorted(map(int, _DELETED.findall(patch)), reverse=True):
        del conf[number - 1 : _end(conf, number - 1)]
    text = "\n".join(conf) + "\n"
    for line in lines(patch):
        text = _replaced(text, line.text)
    own = {key: value for key, value in before.params if key not in IN_FILE}
    if commands := "".join(f"{one}\n" for one in _RUN.findall(patch)):
        own |= {"accounts": f"{script(_people(before))}{commands}", "qos": ""}
    return Spec.of(before.name, **(own | {"conf": text}))


def _is(one: Spec, other: Spec) -> bool:
    """Tell whether the files of two policies say the same; nodes and partitions in any order."""
    first, second = (
        replace(
            config,
            nodes=tuple(sorted(config.nodes, key=lambda node: node.name)),
            partitions=tuple(sorted(config.partitions, key=lambda part: part.name)),
            where={},
            findings=(),
        )
        for config in (read_conf(written(spec)) for spec in (one, other))
    )
    return first == second and _people(one).bare == _people(other).bare


def written(spec: Spec) -> str:
    """Return the ``slurm.conf`` of a policy, with the parameters that go before it."""
    conf, given = _text(spec, "conf"), dict(spec.params)
    own = {
        key: _value(name, given[name])
        for name, (key, _) in IN_FILE.items()
        if name in given and given[name] != DEFAULTS[name]
    }
    for key, value in own.items():
        if key[0].isupper():
            conf = _replaced(conf, f"{key}={value}")
    options = {key: value for key, value in own.items() if key[0].islower()}
    if options:
        old = next((text for key, (_, text) in _keyed(conf).items() if key == _OPTIONS.lower()), "")
        conf = _replaced(conf, f"{_OPTIONS}={_merged(old.partition('=')[2].lstrip('='), options)}")
    read_conf(conf)
    return conf


def _text(spec: Spec, name: str) -> str:
    return str(dict(spec.params).get(name, ""))


def _value(name: str, value: object) -> str:
    """Return a parameter as ``slurm.conf`` writes it."""
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


def _merged(options: str, new: Mapping[str, str]) -> str:
    """Return a list of options with new values in the places of the old ones."""
    left, parts = dict(new), []
    for part in options.split(","):
        key = part.partition("=")[0].strip()
        known = {"max_job_bf": "bf_max_job_test"}.get(key.lower(), key.lower())
        if known in left:
            parts.append(f"{key}={left.pop(known)}")
        elif part.strip():
            parts.append(part.strip())
    return ",".join([*parts, *(f"{key}={value}" for key, value in left.items())])


def _keyed(conf: str) -> dict[str, tuple[int, str]]:
    """Return the logical lines by what they set, the last of a kind: (number, text)."""
    named = [(_key(line.text), line) for line in lines(conf)]
    times = Counter(key for key, _ in named)
    return {
        line.text.lower() if times[key] > 1 and key.startswith(_PARTS) else key: (
            line.number,
            line.text,
        )
        for key, line in named
    }


def _key(text: str) -> str:
    first = text.split(maxsplit=1)[0].lower()
    return first if first.startswith(_PARTS) else text.partition("=")[0].strip().lower()


def _replaced(conf: str, text: str) -> str:
    """Return a file in which a line stands in the place of the one that sets the same; a new one
    goes behind those of its kind, or before nodes and partitions.
    """
    raw = conf.splitlines()
    at = next((line for key, line in _keyed(conf).items() if key == _key(text)), None)
    parts = [line for line in lines(conf) if _key(line.text).startswith(_PARTS[:2])]
    alike = [line for line in parts if _kind(line.text) == _kind(text)]
    if at is not None:
        raw[at[0] - 1 : _end(raw, at[0] - 1)] = [text]
    elif alike:
        raw.insert(_end(raw, alike[-1].number - 1), text)
    else:
        raw.insert(parts[0].number - 1 if parts else len(raw), text)
    return "\n".join(raw) + "\n"


def _kind(text: str) -> str:
    return text.partition("=")[0].strip().lower()


def _end(raw: Sequence[str], first: int) -> int:
    """Return where a line ends that backslashes may continue."""
    last = first
    while raw[last].rstrip().endswith("\\"):
        last += 1
    return last + 1


def load(before: Sequence[ExportRun], after: Sequence[ExportRun]) -> list[str]:
    """Return what the controller's own diagnosis should show of a patch, as sentences.

    Parameters
    ----------
    before, after : sequence of Simulated
        Repeats under the configuration in force and under the new one.
    """
    look = "Test with sdiag before and after: mean backfill cycle, depth"
    old, new = (
        [depth for one in runs if (depth := depth_in(one.remarks)) is not None]
        for runs in (before, after)
    )
    if not (old and new):
        return [f"{look}."]
    was, now = sum(old) / len(old), sum(new) / len(new)
    return [
        f"{look}; expect {100 * (now / was - 1):+.0f} % tested jobs ({was:,.1f} -> {now:,.1f} a"
        " cycle, simulated)."
    ]


def _advice(keys: set[str]) -> Iterator[str]:
    if not keys:
        return
    restart = [name for key, name in _RESTART.items() if key in keys]
    yield (
        f"To apply: change slurm.conf on all hosts, then restart slurmctld ({', '.join(restart)}"
        " takes effect at a start only). Jobs that run stay."
        if restart
        else "To apply: change slurm.conf on all hosts, then scontrol reconfigure. Limits act at"
        " once; jobs that run stay."
    )

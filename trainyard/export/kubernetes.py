"""A changed configuration of Kueue or KAI as a patch: the objects that differ, ready for
``kubectl``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from allocators.sites.manifests import Manifest, manifests
from sim.errors import ParameterError
from trainyard.export.caveats import comments

_NOBODY = ("metadata.resourceVersion", "metadata.uid", "metadata.generation", "status.")
"""What only the API server writes."""
_SETTINGS = "Configuration"
_WHERE_SETTINGS = (
    "It stands in the ConfigMap kueue-manager-config under controller_manager_config.yaml; Kueue's"
    " controller reads it when it starts."
)


def patch(before: str, after: str, caveats: Sequence[str]) -> str:
    """Return the objects of a configuration that differ from another one.

    Parameters
    ----------
    before, after : str
        The YAML that is in force, and the one that was simulated.
    caveats : sequence of str
        What the patch rests on; comments at its top.

    Returns
    -------
    str
        Whole objects as they are written in the new file, with what was changed as comments, the
        old value first. Objects that are gone are comments only: deleting is left to you.

    Raises
    ------
    ParameterError
        If they say the same.
    """
    old = {_key(one): one for one in manifests(before)}
    new = {_key(one): one for one in manifests(after)}
    parts = [part for key, one in new.items() if (part := _changed(old.get(key), one))]
    gone = [one for key, one in old.items() if key not in new]
    if not (parts or gone):
        raise ParameterError(
            "Both configurations hold the same objects, so there is nothing to take home."
        )
    head = [
        *caveats,
        "Look at it with kubectl diff -f FILE, apply it with kubectl apply -f FILE. Quotas act at"
        " once on jobs that wait; jobs that run keep their quota until they end or are preempted.",
        *map(_gone, gone),
    ]
    return "---\n".join([comments(head), *parts])


def _key(one: Manifest) -> tuple[str, str, str]:
    return one.kind, one.namespace, one.name


def _changed(old: Manifest | None, new: Manifest) -> str:
    """Return an object with its changes, "" where there are none."""
    lines = ["New."] if old is None else list(_differences(old, new))
    if not lines:
        return ""
    if new.kind != _SETTINGS:
        return comments(lines) + new.source
    # No object of the API server, so kubectl would refuse the whole file.
    return comments([_WHERE_SETTINGS, *lines]) + _commented(new.source)


def _gone(one: Manifest) -> str:
    if one.kind == _SETTINGS:
        return f"Gone in the new configuration: the {_SETTINGS}. {_WHERE_SETTINGS}"
    space = f" -n {one.namespace}" if one.namespace else ""
    return (
        f"Gone in the new configuration: {one.kind} {one.name}. To delete it: kubectl delete"
        f" {one.kind.lower()} {one.name}{space}"
    )


def _commented(text: str) -> str:
    return "".join(f"#   {line}\n" for line in text.splitlines())


def _differences(old: Manifest, new: Manifest) -> Iterator[str]:
    was, now = (
        {path: value for path, value in one.fields.leaves().items() if not path.startswith(_NOBODY)}
        for one in (old, new)
    )
    for path in sorted(was.keys() | now.keys()):
        if was.get(path) != now.get(path):
            yield f"{path}: {was.get(path, '(not set)')} -> {now.get(path, '(not set)')}"

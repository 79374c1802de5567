"""Writes a changed configuration of Kueue or KAI as a patch for ``kubectl``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from allocators.sites.manifests import Manifest, parse_manifests
from sim.errors import ParameterError
from trainyard.export.caveats import comments

_SERVER_FIELDS = ("metadata.resourceVersion", "metadata.uid", "metadata.generation", "status.")
"""Fields that only the API server writes."""
_SETTINGS = "Configuration"
_WHERE_SETTINGS = (
    "It belongs in the ConfigMap kueue-manager-config under controller_manager_config.yaml; Kueue's"
    " controller reads it when it starts."
)


def patch(before: str, after: str, caveats: Sequence[str]) -> str:
    """Return the objects of a new configuration that differ from the old one, as YAML.

    Parameters
    ----------
    before, after : str
        The YAML that is in force, and the one that was simulated.
    caveats : sequence of str
        Comments for the top of the patch.

    Returns
    -------
    str
        Whole objects from the new file, with each change as a comment (old -> new value). Removed
        objects appear as comments only: deleting them is left to the user.

    Raises
    ------
    ParameterError
        If the configurations are equal.
    """
    old = {_key(one): one for one in parse_manifests(before)}
    new = {_key(one): one for one in parse_manifests(after)}
    parts = [part for key, one in new.items() if (part := _changed_object(old.get(key), one))]
    gone = [one for key, one in old.items() if key not in new]
    if not (parts or gone):
        raise ParameterError(
            "Both configurations hold the same objects, so there is nothing to export."
        )
    head = [
        *caveats,
        "Review: kubectl diff -f FILE. Apply: kubectl apply -f FILE. Quotas apply at once to"
        " waiting jobs; running jobs keep their quota until they end or are preempted.",
        *map(_removal_comment, gone),
    ]
    return "---\n".join([comments(head), *parts])


def _key(one: Manifest) -> tuple[str, str, str]:
    return one.kind, one.namespace, one.name


def _changed_object(old: Manifest | None, new: Manifest) -> str:
    """Return the YAML of a new or changed object after its changes as comments; "" if equal.

    Settings of Kueue's controller are comments as a whole.
    """
    lines = ["New."] if old is None else list(_field_changes(old, new))
    if not lines:
        return ""
    if new.kind != _SETTINGS:
        return comments(lines) + new.source
    # Not an object of the API server: kubectl would reject the whole file.
    return comments([_WHERE_SETTINGS, *lines]) + _comment_out(new.source)


def _removal_comment(one: Manifest) -> str:
    """Return the comment on a removed object, with the command that deletes it."""
    if one.kind == _SETTINGS:
        return f"Not in the new configuration: the {_SETTINGS}. {_WHERE_SETTINGS}"
    space = f" -n {one.namespace}" if one.namespace else ""
    return (
        f"Not in the new configuration: {one.kind} {one.name}. To delete it: kubectl delete"
        f" {one.kind.lower()} {one.name}{space}"
    )


def _comment_out(text: str) -> str:
    """Return a text with every line as a comment."""
    return "".join(f"#   {line}\n" for line in text.splitlines())


def _field_changes(old: Manifest, new: Manifest) -> Iterator[str]:
    """Yield "path: old -> new" for each field that differs; server fields are skipped."""
    was, now = (
        {
            path: value
            for path, value in one.fields.leaves().items()
            if not path.startswith(_SERVER_FIELDS)
        }
        for one in (old, new)
    )
    for path in sorted(was.keys() | now.keys()):
        if was.get(path) != now.get(path):
            yield f"{path}: {was.get(path, '(not set)')} -> {now.get(path, '(not set)')}"

"""Classify dropped files: traces, descriptions of machines, figures of look-alikes, or neither."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from jobtraces import ReadOptions, detect, peek
from jobtraces.readers.columns import TABLE
from jobtraces.readers.content import Content, plain_name
from jobtraces.readers.files import ARCHIVE_ERRORS, is_workbook, open_all, open_source, open_zip
from jobtraces.recipes import refuse_unreadable, shipped_recipes
from jobtraces.recipes.sources import assign_tables
from sim.errors import ClusterError, TraceError, TrainyardError
from trainyard.clusters.kubernetes import is_node_yaml
from trainyard.clusters.machines import import_cluster
from trainyard.clusters.node_lists import (
    MAX_LIST_BYTES,
    ImportedCluster,
    is_machine_header,
    is_sinfo,
    is_slurm,
)
from trainyard.clusters.virtual_clusters import (
    assign_nodes,
    has_sizes_only,
    is_virtual_cluster_header,
)
from trainyard.study.scenario import TraceSpec
from trainyard.traces import likeness
from trainyard.traces.intake import MAPPED_FORMATS, MAX_UPLOAD_BYTES

MAX_CLUSTER_BYTES: Final = 5_000_000
"""Size limit for dropped files that describe a cluster."""
FileKind = Literal["jobs", "figures", "machines", "refused"]


class DroppedFile(NamedTuple):
    """A dropped file, or the files of one trace, with its kind.

    Parameters
    ----------
    kind : {"jobs", "figures", "machines", "refused"}
        A trace, the figures of a look-alike, a description of machines, or none of these.
    name : str
        Name of the file; several names are joined by " + ".
    content : bytes, TraceSpec or str
        Bytes of the file, with several tables in one zip archive; for figures, the trace that they
        generate; for a refused file, the reason as a sentence.
    """

    kind: FileKind
    name: str
    content: bytes | TraceSpec | str


class FileGroups(NamedTuple):
    """Several files by kind.

    Parameters
    ----------
    traces : list of tuple of str
        File names of each trace; several for a trace of several tables.
    machines : mapping of str to ImportedCluster
        Name of a file that describes machines -> its cluster.
    refused : mapping of str to str
        Names of unused files -> the reason as a sentence.
    """

    traces: list[tuple[str, ...]]
    machines: dict[str, ImportedCluster]
    refused: dict[str, str]


def classify_files(
    files: Mapping[str, bytes], max_bytes: int = MAX_UPLOAD_BYTES
) -> list[DroppedFile]:
    """Return each dropped file with its kind, by content; tables of one trace are packed.

    Parameters
    ----------
    files : mapping of str to bytes
        File name -> content, plain or packed. Members of a zip archive count as files, unless they
        are the tables of one trace.
    max_bytes : int
        Size limit for all unpacked files.

    Returns
    -------
    list of DroppedFile
        A single file of unknown kind counts as jobs, so reading it reports the error. Among several
        files, a file of unknown kind counts as jobs if the others describe machines: the user can
        choose its columns.

    Raises
    ------
    TrainyardError
        If figures of a look-alike are invalid, or a table of a trace cannot be unpacked.
    """
    files = _unfold_archives(files, max_bytes)
    if len(files) == 1:
        name, data = next(iter(files.items()))
        if (spec := likeness.open_figures(data)) is not None:
            return [DroppedFile("figures", name, spec)]
        is_cluster = _find_machines(name, data) is not None
        return [DroppedFile("machines" if is_cluster else "jobs", name, data)]
    groups = group_files(files, max_bytes)
    try:
        _combine_clusters(groups.machines)
    except ClusterError as error:
        groups.refused[", ".join(groups.machines)] = str(error)
        groups.machines.clear()
    return [
        *(_pack_trace(names, files) for names in groups.traces),
        *(DroppedFile("machines", name, files[name]) for name in groups.machines),
        *(DroppedFile("refused", name, sentence) for name, sentence in groups.refused.items()),
    ]


def select_contents(drops: Iterable[DroppedFile], kind: FileKind) -> dict[str, Any]:
    """Return name -> content of the dropped files of one kind."""
    return {drop.name: drop.content for drop in drops if drop.kind == kind}


def read_machines(name: str, content: bytes, epoch: str = "") -> ImportedCluster | None:
    """Return the cluster that a file describes; None for traces and for unreadable files.

    Parameters
    ----------
    name, content, epoch
        See `trainyard.clusters.machines.import_cluster`.
    """
    try:
        opened = open_source(content, name, ReadOptions(max_bytes=MAX_LIST_BYTES))
        fmt, text = detect(opened), content.decode("utf-8-sig", "replace")
        # A table holds jobs if it has a column that no list of machines has.
        if fmt is not None and not (
            fmt is TABLE
            and (
                is_machine_header(opened.sample.cells)
                or is_virtual_cluster_header([plain_name(cell) for cell in opened.sample.cells])
                # Check the original text: `opened` has turned records into a table.
                or any(is_format(text) for is_format in (is_slurm, is_sinfo, is_node_yaml))
            )
        ):
            return None
        return import_cluster(name, content, epoch)
    except TrainyardError:
        return None  # reading it as a trace reports the error


def read_cluster_files(files: Mapping[str, bytes], epoch: str = "") -> ImportedCluster | None:
    """Return the cluster that the dropped files describe, None if there is none.

    Raises
    ------
    ClusterError
        If several files describe clusters that cannot be combined.
    """
    by_name = {name: read_machines(name, data, epoch) for name, data in files.items()}
    return _combine_clusters(
        {name: imported for name, imported in by_name.items() if imported is not None}
    )


def _combine_clusters(by_name: Mapping[str, ImportedCluster]) -> ImportedCluster | None:
    """Return the only cluster, or nodes assigned to the virtual clusters of another file.

    None without a cluster; raises an error for other combinations.
    """
    if len(by_name) < 2:
        return next(iter(by_name.values()), None)
    sizes, *others = sorted(by_name.values(), key=has_sizes_only, reverse=True)
    if len(others) == 1 and has_sizes_only(sizes) and not has_sizes_only(others[0]):
        return assign_nodes(others[0], sizes)
    raise ClusterError(
        f"{', '.join(by_name)}: each of these describes machines, so none is used. Drop only one of"
        " them."
    )


def _find_machines(name: str, data: bytes) -> ImportedCluster | None:
    """Return the cluster that a file describes; None for other and for large files."""
    return read_machines(name, data) if len(data) <= MAX_CLUSTER_BYTES else None


def group_files(files: Mapping[str, bytes], max_bytes: int = MAX_UPLOAD_BYTES) -> FileGroups:
    """Group several files into traces, descriptions of machines, and unused files.

    Parameters
    ----------
    files, max_bytes
        See `classify_files`.
    """
    groups, unknown = FileGroups([], {}, {}), []
    opened: dict[str, list[Content]] = {}
    for name, data in files.items():
        if (cluster := _find_machines(name, data)) is not None:
            groups.machines[name] = cluster
            continue
        try:
            opened[name] = open_all(data, name, ReadOptions(max_bytes=max(max_bytes, 1)))
            max_bytes -= sum(len(content.data) for content in opened[name])
        except TrainyardError as error:
            groups.refused[name] = str(error)
    _join_tables(opened, groups)
    joined = {name for names in groups.traces for name in names}
    for name in (name for name in opened if name not in joined):
        try:
            if _is_readable_trace(name, opened[name]):
                groups.traces.append((name,))
            else:
                unknown.append(name)
        except TrainyardError as error:
            groups.refused[name] = str(error)
    if not groups.traces and len(unknown) == 1:
        groups.traces.append((unknown.pop(),))
    advice = "" if groups.traces else " If it holds jobs, drop it alone and choose its columns."
    for name in unknown:
        reason = "this is neither a trace of a known format nor a list of machines"
        groups.refused[name] = f"{name}: {reason}, so it is not used.{advice}"
    return groups


def _unfold_archives(files: Mapping[str, bytes], max_bytes: int) -> dict[str, bytes]:
    """Return files with zip archives replaced by their members.

    Archives of the tables of one trace stay, and so do unreadable ones: reading reports the error.
    """
    unfolded: dict[str, bytes] = {}
    for name, data in files.items():
        unfolded[name] = data
        if data[:4] != b"PK\x03\x04" or is_workbook(data):
            continue
        try:
            with open_zip(data, name) as archive:
                if len(archive.infolist()) < 2:
                    continue
            members = open_all(data, name, ReadOptions(max_bytes=max(max_bytes, 1)))
            is_mixed = len(members) > 1 and not any(
                assign_tables(recipe, members) for recipe in shipped_recipes() if recipe.tables
            )
        except (TrainyardError, *ARCHIVE_ERRORS):
            continue
        if is_mixed:
            max_bytes -= sum(len(content.data) for content in members)
            del unfolded[name]
            unfolded |= {content.name: content.data for content in members}
    return unfolded


def _pack_trace(names: tuple[str, ...], files: Mapping[str, bytes]) -> DroppedFile:
    """Return the files of one trace as one dropped file: a zip archive of several tables."""
    if len(names) == 1:
        return DroppedFile("jobs", names[0], files[names[0]])
    buffer, options = io.BytesIO(), ReadOptions(max_bytes=MAX_UPLOAD_BYTES)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            for content in open_all(files[name], name, options):
                archive.writestr(content.name, content.data)
                options = replace(options, max_bytes=options.max_bytes - len(content.data))
    return DroppedFile("jobs", " + ".join(names), buffer.getvalue())


def _join_tables(opened: dict[str, list[Content]], groups: FileGroups) -> None:
    """Add files that are tables of one trace to `groups`; refuse tables that occur twice.

    Refused files are removed from `opened`.
    """
    single = {name: contents[0] for name, contents in opened.items() if len(contents) == 1}
    for recipe in shipped_recipes():
        if not recipe.tables:
            continue
        try:
            tables = assign_tables(recipe, single.values())
        except TraceError as error:
            repeated = [name for name, table in single.items() if assign_tables(recipe, [table])]
            groups.refused[", ".join(repeated)] = str(error)
            for name in repeated:
                del single[name], opened[name]
            continue
        names = tuple(name for name, table in single.items() if table in tables.values())
        if len(names) > 1:
            groups.traces.append(names)
            single = {name: table for name, table in single.items() if name not in names}


def _is_readable_trace(name: str, opened: list[Content]) -> bool:
    """Return True if a file is a trace of a known format or with all columns recognized.

    Raises
    ------
    TrainyardError
        If it is not a trace.
    """
    start = peek(opened, name=name, options=ReadOptions(max_bytes=MAX_UPLOAD_BYTES))
    if start.fmt not in MAPPED_FORMATS:
        return True
    refuse_unreadable(opened[0])
    return bool(start.fmt) and not start.missing

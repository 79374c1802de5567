"""Policy parameters that hold file contents, read from the path that the user names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import allocators
from sim.errors import ParameterError
from sim.params import MAX_FILE_LENGTH, ParamInfo, Spec, is_file_text, parameters

_MAX_BYTES: Final = 4 * MAX_FILE_LENGTH


def read_file_parameters(spec: Spec) -> Spec:
    """Return a policy with file contents in place of paths, also in nested policies.

    Values that are not paths are unchanged.

    Raises
    ------
    ParameterError
        If a file, or one that it includes, cannot be read, is not text or is too large.
    """
    cls = allocators.REGISTRY.get(spec.name)
    infos = {info.name: info for info in parameters(cls)} if cls is not None else {}
    values = {
        key: read_file_parameters(value)
        if isinstance(value, Spec)
        else _file_content(infos.get(key), value)
        for key, value in spec.params
    }
    return Spec.of(spec.name, **values)


def with_file_contents(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario or study document with file contents in its policies.

    Raises
    ------
    ParameterError
        As `read_file_parameters`.
    """
    changed = dict(document)
    if isinstance(changed.get("base"), Mapping):
        changed["base"] = with_file_contents(changed["base"])
    if _is_spec(changed.get("allocator")):
        changed["allocator"] = _with_file_parameters(changed["allocator"])
    if isinstance(changed.get("allocators"), list):
        changed["allocators"] = [
            _with_file_parameters(one) if _is_spec(one) else one for one in changed["allocators"]
        ]
    return changed


def decode_file(data: bytes, info: ParamInfo) -> str:
    """Return the content of a settings file as text, with line endings of one kind.

    Raises
    ------
    ParameterError
        If it is not text, or not the expected kind of file.
    """
    try:
        text = data.decode("utf-8-sig")
    except ValueError as error:
        raise ParameterError(
            f"This is not a {info.file}: it is not UTF-8 text. Choose another file."
        ) from error
    # Line endings of other systems make no difference.
    text = text.replace("\r\n", "\n")
    if not is_file_text(text):
        raise ParameterError(f"This is not a {info.file}: it has no settings. Choose another file.")
    return text


def expand_includes(text: str, path: Path, word: str) -> str:
    """Return the text of a file with its ``Include FILE`` lines expanded.

    Expanded lines become comments. Relative paths start at the folder of the first file.

    Parameters
    ----------
    text : str
        Content of the file.
    path : Path
        Path of the file.
    word : str
        First word of such lines, case-insensitive.

    Raises
    ------
    ParameterError
        If an included file cannot be read, is not text or includes itself, or the result is too
        large.
    """
    named = re.compile(rf"\s*{word}\s+([^#\s][^#]*?)\s*(#.*)?", re.IGNORECASE)

    def expand(text: str, within: tuple[Path, ...]) -> str:
        """Return a text with its include lines expanded; `within` = open files, outermost first."""
        lines, letters = [], 0
        for number, line in enumerate(text.splitlines(), 1):
            lines.append(line)
            if match := named.fullmatch(line):
                given = match[1].strip("\"'")
                included, where = (
                    path.parent / Path(given).expanduser(),
                    f"{within[-1]}, line {number}",
                )
                if included.resolve() in [one.resolve() for one in within]:
                    raise ParameterError(f"{where}: {given} includes itself. Delete this line.")
                lines[-1:] = [
                    f"# {line.strip()}",
                    expand(read_included(included, where), (*within, included)),
                ]
            letters += len(lines[-1]) + 1
            if letters > MAX_FILE_LENGTH:
                raise ParameterError(
                    f"{path}: the file and its includes exceed {MAX_FILE_LENGTH:,} characters."
                    " Include fewer files."
                )
        return "\n".join(lines) + "\n" * text.endswith("\n")

    return expand(text, (path,))


def read_included(path: Path, where: str) -> str:
    """Return the text of an included file, without its last line ending.

    Parameters
    ----------
    path : Path
        Path of the file.
    where : str
        Place of the include, for error messages.

    Raises
    ------
    ParameterError
        If it cannot be read, is not text or is too large.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ParameterError(f"{where}: {path} is too large to be included.")
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        why = error.strerror or error if isinstance(error, OSError) else "it is not text"
        raise ParameterError(
            f"{where}: {path} cannot be read ({why}). Check the path and the rights."
        ) from error
    return text.replace("\r\n", "\n").removesuffix("\n")


def _file_content(info: ParamInfo | None, value: Any) -> Any:
    """Return the content of the file that a parameter names; other values unchanged.

    Include lines are expanded. Raises ParameterError if the file cannot be read or used.
    """
    if info is None or info.kind != "file" or not value or value in info.choices:
        return value
    if not isinstance(value, str) or is_file_text(value):
        return value
    path = Path(value).expanduser()
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ParameterError(f"{value}: this file is too large to be a {info.file}.")
        data = path.read_bytes()
    except OSError as error:
        raise ParameterError(
            f"{value}: the {info.file} of {info.name} cannot be read ({error.strerror or error})."
            " Check the path and the rights."
        ) from error
    try:
        text = decode_file(data, info)
    except ParameterError as error:
        raise ParameterError(f"{value}: {error}") from error
    return expand_includes(text, path, info.include) if info.include else text


def _is_spec(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and "name" in value)


def _with_file_parameters(value: Any) -> Any:
    """Return the JSON of a policy with file contents in place of paths."""
    return read_file_parameters(Spec.from_json(value)).to_json()

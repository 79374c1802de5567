"""Parameters that are the text of a file: read from its path where a command or a script names
one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import allocators
from sim.errors import ParameterError
from sim.params import LONGEST_FILE, ParamInfo, Spec, is_file_text, parameters

_MOST_BYTES: Final = 4 * LONGEST_FILE


def with_texts(spec: Spec) -> Spec:
    """Return a policy with the texts of files in the place of their paths, also in policies inside
    it; what is no path stays as it is.

    Raises
    ------
    ParameterError
        If a file, or one that it includes, cannot be read, is no text or is too large.
    """
    cls = allocators.REGISTRY.get(spec.name)
    infos = {info.name: info for info in parameters(cls)} if cls is not None else {}
    values = {
        key: with_texts(value) if isinstance(value, Spec) else _text(infos.get(key), value)
        for key, value in spec.params
    }
    return Spec.of(spec.name, **values)


def localised(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario or study as JSON with such texts in its policies.

    Raises
    ------
    ParameterError
        As `with_texts`.
    """
    made = dict(document)
    if isinstance(made.get("base"), Mapping):
        made["base"] = localised(made["base"])
    if _is_spec(made.get("allocator")):
        made["allocator"] = _read(made["allocator"])
    if isinstance(made.get("allocators"), list):
        made["allocators"] = [_read(one) if _is_spec(one) else one for one in made["allocators"]]
    return made


def text_of(data: bytes, info: ParamInfo) -> str:
    """Return the text of a file as the value of a parameter.

    Raises
    ------
    ParameterError
        If it is no text, or not such a text.
    """
    try:
        found = data.decode("utf-8-sig")
    except ValueError as error:
        raise ParameterError(
            f"This is no {info.file}, but something that is no text. Choose another file."
        ) from error
    # Line ends of another system are no difference.
    found = found.replace("\r\n", "\n")
    if not is_file_text(found):
        raise ParameterError(f"This is no {info.file}: it holds no settings. Choose another file.")
    return found


def with_included(text: str, path: Path, word: str) -> str:
    """Return the text of a file with the lines of the files that it names in the places of the
    lines ``Include FILE``; those become comments. Relative names count from the folder of the first
    file.

    Parameters
    ----------
    text : str
        Of the file.
    path : Path
        Of the file.
    word : str
        With which such lines begin, in any case.

    Raises
    ------
    ParameterError
        If such a file cannot be read, is no text or includes itself, or all are too large.
    """
    named = re.compile(rf"\s*{word}\s+([^#\s][^#]*?)\s*(#.*)?", re.IGNORECASE)

    def joined(text: str, within: tuple[Path, ...]) -> str:
        made, letters = [], 0
        for number, line in enumerate(text.splitlines(), 1):
            made.append(line)
            if found := named.fullmatch(line):
                given = found[1].strip("\"'")
                at, where = path.parent / Path(given).expanduser(), f"{within[-1]}, line {number}"
                if at.resolve() in [one.resolve() for one in within]:
                    raise ParameterError(f"{where}: {given} includes itself. Delete this line.")
                made[-1:] = [f"# {line.strip()}", joined(text_at(at, where), (*within, at))]
            letters += len(made[-1]) + 1
            if letters > LONGEST_FILE:
                raise ParameterError(
                    f"{path}: with what it includes it has more than {LONGEST_FILE:,} letters."
                    " Leave some out."
                )
        return "\n".join(made) + "\n" * text.endswith("\n")

    return joined(text, (path,))


def text_at(path: Path, where: str) -> str:
    """Return the text of a file that another one brings in, without its last line end.

    Parameters
    ----------
    path : Path
        Of the file.
    where : str
        What brings it in, for what is said of errors.

    Raises
    ------
    ParameterError
        If it cannot be read, is no text or is too large.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ParameterError(f"{where}: {path} is too large to be included.")
        found = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        why = error.strerror or error if isinstance(error, OSError) else "it is no text"
        raise ParameterError(
            f"{where}: {path} cannot be read ({why}). Check the path and the rights."
        ) from error
    return found.replace("\r\n", "\n").removesuffix("\n")


def _text(info: ParamInfo | None, value: Any) -> Any:
    if info is None or info.kind != "file" or not value or value in info.choices:
        return value
    if not isinstance(value, str) or is_file_text(value):
        return value
    path = Path(value).expanduser()
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ParameterError(f"{value}: this file is too large to be a {info.file}.")
        data = path.read_bytes()
    except OSError as error:
        raise ParameterError(
            f"{value}: the {info.file} of {info.name} cannot be read ({error.strerror or error})."
            " Check the path and the rights."
        ) from error
    try:
        found = text_of(data, info)
    except ParameterError as error:
        raise ParameterError(f"{value}: {error}") from error
    return with_included(found, path, info.include) if info.include else found


def _is_spec(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and "name" in value)


def _read(value: Any) -> Any:
    return with_texts(Spec.from_json(value)).to_json()

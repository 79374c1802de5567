"""Count wording that slows a reader down in docstrings, messages, names and documentation.

`python3 scripts/plain_english.py [PATH ...]` prints each measure by package and overall, and exits
with 1 above a limit; `--list` prints every hit. Rewrite the sentence or the name, not the word.
Standard library only.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.size import AROUND, PRODUCT, Measure, package_of, syntax_nodes  # noqa: E402 - see above

# Measure -> the most hits. A limit falls whenever fewer are reached; it never rises.
LIMITS: Final[Mapping[str, int]] = {
    "docstrings": 0,
    "module docstrings": 0,
    "messages": 3,
    "names": 4,
    "participles": 4,
    "identifiers": 15,
    "docs": 8,
    "long sentences": 2,
    "words of docs": 45_000,
}

COUNTS: Final = ("identifiers", "words of docs")
"""Measures that count texts instead of a share of hits."""
MAX_SENTENCE_WORDS: Final = 40
MIN_SPACES: Final = 4
"""A string with at least this number of spaces is read as a message."""

PERSONS: Final = re.compile(r"\b(who|whoever|nobody|somebody)\b", re.IGNORECASE)
VAGUE: Final = re.compile(
    rf"{PERSONS.pattern}|\b(whom|whose|anybody|everybody)\b"
    r"|\bthose (of|that|who)\b"
    r"|\bwhat (all|came|comes?|had|has|have|is|are|was|were|it|they|nodes|others|somebody|stands?"
    r"|there)\b"
    r"|\bthe one (at|inside|of|shown|that)\b"
    r"|\bthe (one|others?|rest|same)\.?$",
    re.IGNORECASE,
)
STILTED: Final = re.compile(
    r"\b(alike|apart|besides?|meanwhile|mend(s|ed|ing)?|shall|stands?|stood)\b"
    r"|\b(be|been|is|are|was|were) (said|told)\b|\bmay be told\b|\bhas to say\b|\bsa(id|ys) so\b"
    r"|\bso (many|much)\b|\b(by|for|in) which\b|\bin its stead\b|\bin words\b|\bwithout a word\b"
    r"|\b(came|comes?) to\b|\bfrom (now|then) on\b|\bat hand\b|\bof its own\b|\bways? out\b"
    r"|\bas (it is|it are|they are|they is)\b|\bone (is after|may|might)\b|\bnothing (but|of)\b"
    r"|\bput in order\b",
    re.IGNORECASE,
)
QUESTION: Final = re.compile(r"(what|who|whose|how much|whether|where|which)\b", re.IGNORECASE)
NAMES: Final = re.compile(
    r"(after|alike|alone|apart|asked|at|at_once|before|behind|beside|carried_out|come|do|doomed"
    r"|found|given|go|held|hopeless|kept|known|leave|left|made|made_meanwhile|matters|note|of"
    r"|offer|offered|offers|others|poured|run_on|said|seen|settled?|shown|since|spares|stirred"
    r"|stood|sub|taken|told|told_parts|took|wanted|ways_out|who|whole|whose)"
)
IDENTIFIERS: Final = frozenset(("asked", "found", "known", "made", "told"))
IRREGULAR: Final = re.compile(
    r"(begun|bound|built|chosen|cut|drawn|found|given|held|hidden|kept|known|left|lost|made|met"
    r"|put|said|seen|sent|shown|spent|taken|told|written)"
)
NO_PARTICIPLES: Final = frozenset(("embed", "proceed", "shared", "speed"))
SENTENCE_END: Final = re.compile(r"(?<=[.!?])[)\"'*_`]*\s+(?=[*(_]*[A-Z0-9`\"'\[])")
BLOCK_START: Final = re.compile(r"\s*(#|[-*>|] ?|\d+\. |!\[)")


class Finding(NamedTuple):
    """One text that was read: 0 hits if it is plain."""

    measure: str
    line: int
    text: str
    hits: int


def is_participle(name: str) -> bool:
    """Return True if a name is one past participle, such as `_matched` or `kept`."""
    word = name.strip("_").lower()
    is_regular = len(word) > 4 and word.endswith("ed") and word not in NO_PARTICIPLES
    return IRREGULAR.fullmatch(word) is not None or ("_" not in word and is_regular)


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if a function is read as an attribute and needs no verb."""
    decorators = {ast.unparse(one).rpartition(".")[2] for one in node.decorator_list}
    return not decorators.isdisjoint(("property", "cached_property", "setter"))


def read_definition(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> Iterator[Finding]:
    """Yield the findings in the name and the docstring of a module, a class or a function."""
    if not isinstance(node, ast.Module):
        is_no_noun = NAMES.fullmatch(node.name.strip("_").lower()) is not None
        yield Finding("names", node.lineno, node.name, is_no_noun)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:2] != "__":
        is_no_verb = is_participle(node.name) and not is_property(node)
        yield Finding("participles", node.lineno, node.name, is_no_verb)
    docstring = ast.get_docstring(node)
    if docstring is not None:
        line = node.body[0].lineno
        summary = " ".join(docstring.split("\n\n")[0].split())
        is_vague = bool(VAGUE.search(summary) or STILTED.search(summary))
        yield Finding("docstrings", line, summary, is_vague)
        if isinstance(node, ast.Module):
            is_question = QUESTION.match(summary) is not None
            yield Finding("module docstrings", line, summary, is_question)


def read_python(path: Path) -> Iterator[Finding]:
    """Yield the findings of a Python file."""
    docstrings = set()
    for node in syntax_nodes(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for finding in read_definition(node):
                yield finding
                if finding.measure == "docstrings":
                    docstrings.add(finding.line)
    for node in syntax_nodes(path):
        if isinstance(node, ast.Name | ast.arg):
            name = node.id if isinstance(node, ast.Name) else node.arg
            if name.strip("_") in IDENTIFIERS:
                yield Finding("identifiers", node.lineno, name, 1)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if text.count(" ") >= MIN_SPACES and node.lineno not in docstrings:
                is_stilted = bool(STILTED.search(text) or PERSONS.search(text))
                yield Finding("messages", node.lineno, text, is_stilted)


def split_blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs, list items and table cells of a page, each with its first line."""
    start, words, is_code = 0, "", False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        is_fence = line.lstrip().startswith("```")
        if is_code or is_fence or not line.strip() or BLOCK_START.match(line) or words[:1] == "#":
            yield start, words
            words = ""
        is_code ^= is_fence
        if line.lstrip().startswith("|"):
            yield from ((number, cell) for cell in line.split("|") if not is_code)
        elif not is_code and not is_fence:
            start = start if words else number
            words = f"{words} {line}".strip()


def read_page(path: Path, root: Path = ROOT) -> Iterator[Finding]:
    """Yield the findings of a page of documentation."""
    text = path.read_text(encoding="utf-8")
    folders = path.relative_to(root).parts
    if "docs" in folders:
        yield Finding("words of docs", 1, path.stem, len(text.split()))
    if "decisions" not in folders and path.name != "CHANGELOG.md":
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield Finding("docs", number, line, STILTED.search(line) is not None)
    for start, block in split_blocks(text):
        for sentence in SENTENCE_END.split(block):
            is_long = len(sentence.split()) > MAX_SENTENCE_WORDS
            yield Finding("long sentences", start, sentence, is_long)


def all_places(root: Path = ROOT) -> list[str]:
    """Return the places that the limits cover: all except tests, and the pages at the root."""
    return [*PRODUCT, *AROUND, "docs", "sample_traces", *(one.name for one in root.glob("*.md"))]


def files_below(places: Iterable[str], root: Path = ROOT) -> list[Path]:
    """Return the Python files and pages at or below places of a checkout."""
    paths = [path for place in places for path in ((root / place), *(root / place).rglob("*"))]
    return sorted({path for path in paths if path.suffix in (".py", ".md") and path.is_file()})


class Tally:
    """Hits and texts read of files, by measure and package; package "" is all of them."""

    def __init__(self, paths: Iterable[Path], root: Path = ROOT) -> None:
        self.hits: Counter[tuple[str, str]] = Counter()
        self.read: Counter[tuple[str, str]] = Counter()
        self.places: dict[str, list[str]] = defaultdict(list)
        for path in paths:
            name = path.relative_to(root).as_posix()
            package = package_of(name) or "docs"
            for finding in read_python(path) if path.suffix == ".py" else read_page(path, root):
                for key in ((finding.measure, package), (finding.measure, "")):
                    self.hits[key] += finding.hits
                    self.read[key] += 1
                if finding.hits:
                    text = " ".join(finding.text.split())
                    self.places[finding.measure].append(f"{name}:{finding.line}: {text}")

    def share(self, measure: str, package: str) -> str:
        """Return the hits in per cent of the texts read, or their number if each read is one."""
        hits, read = self.hits[measure, package], self.read[measure, package]
        if measure in COUNTS:
            return f"{hits:,}"
        return f"{100 * hits / read:.1f} %" if read else ""


def measure(counted: Tally) -> list[Measure]:
    """Return the hits of each measure with its limit."""
    return [
        Measure(title, counted.hits[title, ""], limit, tuple(counted.places[title]))
        for title, limit in LIMITS.items()
    ]


def main(arguments: Sequence[str], write: Callable[[str], object] = print) -> int:
    """Print the share of each measure by package, and the hits and limits overall."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="*", help="files and folders (default: all, with limits)")
    parser.add_argument("--list", action="store_true", help="print every hit with its place")
    options = parser.parse_args(arguments)
    counted = Tally(files_below(options.places or all_places()))
    measures = measure(counted)
    for one in measures if options.list else ():
        for place in one.items:
            write(f"{one.title}: {place}")
    write(f"{'':22}{'  '.join(f'{title:>6}' for title in LIMITS)}")
    for package in sorted({package for _, package in counted.read}):
        shares = [f"{counted.share(title, package):>{max(len(title), 6)}}" for title in LIMITS]
        write(f"{package or 'all':22}{'  '.join(shares)}")
    over = [one for one in measures if one.value > one.limit and not options.places]
    for one in measures:
        write(f"{one.title:24}{one.value:8,}{one.limit:8,}{'  too many' if one in over else ''}")
    return int(bool(over))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

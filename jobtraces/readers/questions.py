"""What a file leaves open: asked instead of guessed, each question with what is meant without an
answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sim.errors import TraceError

NUMBER: Final = "number"
"""What `Question.free` says of a question that is answered with any number above 0."""
_PLAIN: Final = re.compile(r"[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Question:
    """Something that a file does not say.

    Parameters
    ----------
    id : str
        Key of the answer in `ReadOptions.answers` and of ``--answer ID=VALUE``.
    text : str
        The question in one sentence, with the figures by which the user can tell.
    options : mapping of str to str
        Value of an answer -> what the user reads.
    default : str
        The answer with which the file was read, to be said; "" = without an answer the file cannot
        be read.
    free : str
        `NUMBER` = there are no options and no default; "" = one of the options.
    """

    id: str
    text: str
    options: Mapping[str, str]
    default: str = ""
    free: str = ""

    def takes(self, answer: str) -> bool:
        """Tell whether an answer is one of those that the question allows."""
        if not self.free:
            return answer in self.options
        return _PLAIN.fullmatch(answer) is not None and 0 < float(answer) < math.inf

    @property
    def allowed(self) -> str:
        """Which answers those are, in words."""
        return "a number above 0" if self.free else f"one of {', '.join(self.options)}"


class OpenQuestionError(TraceError):
    """A file cannot be read before questions are answered.

    Parameters
    ----------
    name : str
        The file.
    questions : tuple of Question
        All that are open.
    """

    def __init__(self, name: str, questions: tuple[Question, ...]) -> None:
        self.name, self.questions = name, questions
        first = questions[0]
        super().__init__(f"{name}: {first.text} Answer with {first.allowed}.")

    def __reduce__(self) -> tuple[type, tuple[str, tuple[Question, ...]]]:
        """Return how another process makes it again."""
        return OpenQuestionError, (self.name, self.questions)

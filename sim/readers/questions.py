"""What a file leaves open: asked instead of guessed, each question with what is meant without an
answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sim.errors import TraceError


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
    """

    id: str
    text: str
    options: Mapping[str, str]
    default: str = ""


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
        super().__init__(f"{name}: {first.text} Answer with one of: {', '.join(first.options)}.")

    def __reduce__(self) -> tuple[type, tuple[str, tuple[Question, ...]]]:
        """Return how another process makes it again."""
        return OpenQuestionError, (self.name, self.questions)

"""Whether what makes a policy its own ever had anything to decide in a run: what `remarks` says if it had not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from allocators._sizes import Option


def none_of(jobs: int) -> str:
    """Begin a sentence on a property that no job has, e.g. "none of the 45 jobs has"."""
    return "the only job has not" if jobs == 1 else f"none of the {jobs:,} jobs has"


@dataclass
class Choices:
    """Counts jobs, and looks whether any had a choice of sizes."""

    jobs: int = 0
    any_choice: bool = False

    def look(self, options: Iterable[Option]) -> None:
        """Look at the sizes that jobs may have in a market."""
        self.any_choice = self.any_choice or any(len(option.sizes) > 1 for option in options)

    def remark(self, name: str, did: str) -> tuple[str, ...]:
        """Return a sentence if jobs came and all had one size only, with what the policy did instead."""
        if not self.jobs or self.any_choice:
            return ()
        return (f"{name} resized nothing, since {none_of(self.jobs)} a choice of sizes: {did}.",)

"""Rows of the Policies page: every policy of the registry with its variants, those of the study
ticked, and what becomes of the study when one is ticked, changed or removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sim.params import Spec
from trainyard.study.study import Study, cleaned, titles
from trainyard.traces import start


@dataclass(eq=False)
class PolicyRow:
    """One row: a policy under some settings.

    Parameters
    ----------
    id : str
        Stays the same for as long as the row is there: the name of the policy, and for variants a
        number after it.
    spec : Spec
        The policy with its settings.
    at : int or None
        Place in the study; None = not compared.
    kept : bool
        Whether the row stays when it is not compared: its settings would be lost.
    name : str
        What the user calls it; "" = by its settings.
    """

    id: str
    spec: Spec
    at: int | None = None
    kept: bool = False
    name: str = ""

    @property
    def is_variant(self) -> bool:
        """Whether it is a further row of its policy."""
        return self.id != self.spec.name


@dataclass(eq=False)
class PolicyRows:
    """All rows of a session, in the order of the registry."""

    names: Sequence[str]
    rows: list[PolicyRow] = field(default_factory=list)

    def follow(self, study: Study) -> None:
        """Bring the rows in line with a study: each of its policies has one, and policies that are
        not in it one or those whose settings were changed here.
        """
        free = dict(enumerate(study.allocators))
        for row in self.rows:
            # Of two rows with equal settings each keeps its place.
            row.at = row.at if row.at is not None and free.get(row.at) == row.spec else None
            free.pop(-1 if row.at is None else row.at, None)
        for row in self.rows:
            if row.at is None and not row.kept:
                row.at = next((at for at, spec in free.items() if spec == row.spec), None)
                free.pop(-1 if row.at is None else row.at, None)
        for at, spec in free.items():
            row = self._spare(spec.name) or self.add(spec)
            row.spec, row.at = spec, at
        for row in self.rows:
            row.name = row.name if row.at is None else study.names[row.at]
        rows: list[PolicyRow] = []
        for name in self.names:
            own = [row for row in self.of(name) if row.at is not None or row.kept]
            # A policy is always there without variants, too.
            rows += (
                own if any(row.id == name for row in own) else [PolicyRow(name, Spec(name)), *own]
            )
        self.rows = rows

    @property
    def titles(self) -> tuple[str, ...]:
        """What users read of each row."""
        return titles([row.spec for row in self.rows], [row.name for row in self.rows])

    def of(self, name: str) -> list[PolicyRow]:
        """Return the rows of one policy of the registry."""
        return [row for row in self.rows if row.spec.name == name]

    def get(self, row_id: str) -> PolicyRow | None:
        """Return the row of an id; None = there is none, any more."""
        return next((row for row in self.rows if row.id == row_id), None)

    def add(self, spec: Spec) -> PolicyRow:
        """Add a row below the others of its policy."""
        known = {row.id for row in self.rows}
        numbered = [spec.name, *(f"{spec.name}-{turn}" for turn in range(2, len(known) + 3))]
        row = PolicyRow(next(one for one in numbered if one not in known), spec)
        below = max(
            (at for at, one in enumerate(self.rows) if one.spec.name == spec.name),
            default=len(self.rows) - 1,
        )
        self.rows.insert(below + 1, row)
        return row

    def _spare(self, name: str) -> PolicyRow | None:
        return next((row for row in self.of(name) if row.at is None and not row.kept), None)


def ticked(study: Study, rows: PolicyRows, wanted: Mapping[str, bool]) -> Study:
    """Return the study after rows were ticked or unticked; the last policy stays.

    Parameters
    ----------
    study : Study
        As it is, with the rows in line with it.
    rows : PolicyRows
        Rows that are left out keep their settings.
    wanted : mapping of bool
        Id of a row -> whether it is to be compared; a row that is as wanted changes nothing.
    """
    gone = [row for row in rows.rows if row.at is not None and not wanted.get(row.id, True)]
    new = [row for row in rows.rows if row.at is None and wanted.get(row.id, False)]
    if len(gone) == len(study.allocators) and not new:
        gone = [row for row in gone if row.at != study.baseline]
    made = start.with_policies(
        study, (*study.allocators, *(row.spec for row in new)), study.baseline
    )
    for at, row in enumerate(new, len(study.allocators)):
        made = made.calling(at, row.name)
        row.at, row.kept = at, False
    for row in gone:
        row.kept = bool(row.spec.params) or row.is_variant
    return without(made, rows, gone)


def without(study: Study, rows: PolicyRows, gone: Sequence[PolicyRow]) -> Study:
    """Return the study without the policies of some rows; the baseline stays where it can."""
    left = {row.at for row in gone}
    kept = [at for at in range(len(study.allocators)) if at not in left]
    for row in rows.rows:
        row.at = kept.index(row.at) if row.at in kept else None
    baseline = kept.index(study.baseline) if study.baseline in kept else 0
    return start.with_policies(study, tuple(study.allocators[at] for at in kept), baseline)


def changed(study: Study, row: PolicyRow, spec: Spec) -> Study:
    """Return the study after the settings of a row were changed."""
    row.spec = spec
    if row.at is None:
        row.kept = True
        return study
    specs = list(study.allocators)
    specs[row.at] = spec
    return start.with_policies(study, tuple(specs), study.baseline)


def renamed(study: Study, row: PolicyRow, name: str) -> Study:
    """Return the study after a row got another name; "" = by its settings."""
    row.name = cleaned(name)
    return study if row.at is None else study.calling(row.at, row.name)

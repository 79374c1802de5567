"""Rows of the Policies page: all policies and variants, and edits of the study by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sim.params import Spec
from trainyard.study.study import Study, clean_name, titles
from trainyard.traces import new_study


@dataclass(eq=False)
class PolicyRow:
    """One row: a policy with its settings.

    Parameters
    ----------
    id : str
        Fixed id of the row: name of the policy, with a number for variants.
    spec : Spec
        The policy with its settings.
    study_index : int or None
        Index in the study; None = not compared.
    stays_listed : bool
        Whether the row stays when it is not compared, so that its settings are not lost.
    name : str
        The user's name; "" = named after its settings.
    """

    id: str
    spec: Spec
    study_index: int | None = None
    stays_listed: bool = False
    name: str = ""

    @property
    def is_variant(self) -> bool:
        """Whether this is an additional row of its policy."""
        return self.id != self.spec.name


@dataclass(eq=False)
class PolicyRows:
    """All rows of a session, in the order of the registry."""

    names: Sequence[str]
    rows: list[PolicyRow] = field(default_factory=list)

    def follow(self, study: Study) -> None:
        """Update all rows to a study: index and name of each, and rows for new policies.

        Every policy keeps a row. Rows that are neither compared nor stay listed are removed.
        """
        unassigned = dict(enumerate(study.allocators))
        for row in self.rows:
            # Two rows with equal settings keep their indices.
            row.study_index = (
                row.study_index
                if row.study_index is not None and unassigned.get(row.study_index) == row.spec
                else None
            )
            unassigned.pop(-1 if row.study_index is None else row.study_index, None)
        for row in self.rows:
            if row.study_index is None and not row.stays_listed:
                row.study_index = next(
                    (index for index, spec in unassigned.items() if spec == row.spec), None
                )
                unassigned.pop(-1 if row.study_index is None else row.study_index, None)
        for index, spec in unassigned.items():
            row = self._unused_row(spec.name) or self.add(spec)
            row.spec, row.study_index = spec, index
        for row in self.rows:
            row.name = row.name if row.study_index is None else study.names[row.study_index]
        rows: list[PolicyRow] = []
        for name in self.names:
            policy_rows = [
                row for row in self.rows_of(name) if row.study_index is not None or row.stays_listed
            ]
            # The row without variants always exists.
            rows += (
                policy_rows
                if any(row.id == name for row in policy_rows)
                else [PolicyRow(name, Spec(name)), *policy_rows]
            )
        self.rows = rows

    @property
    def titles(self) -> tuple[str, ...]:
        """Titles of the rows."""
        return titles([row.spec for row in self.rows], [row.name for row in self.rows])

    def rows_of(self, name: str) -> list[PolicyRow]:
        """Return the rows of one policy."""
        return [row for row in self.rows if row.spec.name == name]

    def get(self, row_id: str) -> PolicyRow | None:
        """Return the row of an id, or None."""
        return next((row for row in self.rows if row.id == row_id), None)

    def add(self, spec: Spec) -> PolicyRow:
        """Insert a row with a new id below the other rows of its policy; return it."""
        ids = {row.id for row in self.rows}
        numbered = [spec.name, *(f"{spec.name}-{turn}" for turn in range(2, len(ids) + 3))]
        row = PolicyRow(next(candidate for candidate in numbered if candidate not in ids), spec)
        below = max(
            (
                index
                for index, candidate in enumerate(self.rows)
                if candidate.spec.name == spec.name
            ),
            default=len(self.rows) - 1,
        )
        self.rows.insert(below + 1, row)
        return row

    def _unused_row(self, name: str) -> PolicyRow | None:
        """Return a row of a policy that is not compared and may be reused, or None."""
        return next(
            (row for row in self.rows_of(name) if row.study_index is None and not row.stays_listed),
            None,
        )


def with_ticks(study: Study, rows: PolicyRows, ticks: Mapping[str, bool]) -> Study:
    """Return the study after rows were ticked or unticked; update the rows.

    If all policies are unticked, the baseline stays.

    Parameters
    ----------
    study : Study
        The edited study.
    rows : PolicyRows
        Its rows; unticked rows keep their settings.
    ticks : mapping of bool
        Row id -> whether to compare the policy.
    """
    removed = [
        row for row in rows.rows if row.study_index is not None and not ticks.get(row.id, True)
    ]
    added = [row for row in rows.rows if row.study_index is None and ticks.get(row.id, False)]
    if len(removed) == len(study.allocators) and not added:
        removed = [row for row in removed if row.study_index != study.baseline]
    edited = new_study.with_policies(
        study, (*study.allocators, *(row.spec for row in added)), study.baseline
    )
    for index, row in enumerate(added, len(study.allocators)):
        edited = edited.calling(index, row.name)
        row.study_index, row.stays_listed = index, False
    for row in removed:
        row.stays_listed = bool(row.spec.params) or row.is_variant
    return without_rows(edited, rows, removed)


def without_rows(study: Study, rows: PolicyRows, removed: Sequence[PolicyRow]) -> Study:
    """Return the study without the policies of some rows; update the index of each row.

    The baseline stays, or becomes the first policy if it was removed.
    """
    removed_indices = {row.study_index for row in removed}
    indices = [index for index in range(len(study.allocators)) if index not in removed_indices]
    for row in rows.rows:
        row.study_index = indices.index(row.study_index) if row.study_index in indices else None
    baseline = indices.index(study.baseline) if study.baseline in indices else 0
    return new_study.with_policies(
        study, tuple(study.allocators[index] for index in indices), baseline
    )


def with_settings(study: Study, row: PolicyRow, spec: Spec) -> Study:
    """Set the settings of a row; return the study with them, unchanged if not compared."""
    row.spec = spec
    if row.study_index is None:
        row.stays_listed = True
        return study
    specs = list(study.allocators)
    specs[row.study_index] = spec
    return new_study.with_policies(study, tuple(specs), study.baseline)


def with_name(study: Study, row: PolicyRow, name: str) -> Study:
    """Set the name of a row; return the study with it. "" = named after its settings."""
    row.name = clean_name(name)
    return study if row.study_index is None else study.calling(row.study_index, row.name)

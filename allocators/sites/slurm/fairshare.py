"""Fair share: how much users and accounts have used, and what priority follows (Slurm's
priority/multifactor, classic and Fair Tree).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from sim.contract import ParameterError

ROOT = "root"


@dataclass(frozen=True)
class Association:
    """An account, or a user of one (`user` not empty).

    Without shares (Fairshare=parent) an account dissolves into the one above it, and a user has
    the standing of the account.
    """

    account: str
    user: str
    parent: str
    shares: int | None = 1


@dataclass
class Share:
    """An account or a user in the tree.

    Attributes
    ----------
    shares : int or None
        None = a user with Fairshare=parent.
    usage : float
        Decayed billing units x seconds.
    normal : float
        Part of the cluster that the shares stand for.
    effective : float
        Classic: the usage that counts, of all usage.
    factor : float
        0 to 1; 1 = nothing used.
    """

    name: str
    is_user: bool
    shares: int | None
    parent: Share | None = None
    children: list[Share] = field(default_factory=list)
    usage: float = 0.0
    normal: float = 1.0
    effective: float = 0.0
    factor: float = 1.0


class FairShare:
    """The tree of associations with its usage.

    Parameters
    ----------
    associations : sequence of Association
        Accounts and users; users that are in none get one of their own at their first job. The user
        root has one share beside the accounts unless it is named.
    half_life_s : float, seconds
        After which used time counts half; inf = never forgotten.
    dampening : float
        Of the classic factor.
    tree : bool
        Fair Tree instead of the classic factor.
    lag : bool
        The classic factor is of the usage before a renewal, as in Slurm.

    Notes
    -----
    Classic: at each renewal the effective usage is computed from what is stored, then usage decays,
    then the usage of running jobs is added: priorities lag one period behind. Fair Tree has no lag.
    As in Slurm, users of an account with Fairshare=parent count among those of the account above,
    with their shares and usage.
    """

    def __init__(
        self,
        associations: Sequence[Association],
        half_life_s: float,
        dampening: float,
        *,
        tree: bool,
        lag: bool = True,
    ) -> None:
        self._keep = kept_in_a_second(half_life_s)
        self._dampening, self._tree, self._lag = dampening, tree, lag
        self._root = Share(ROOT, is_user=False, shares=1, effective=1.0)
        self._accounts = {ROOT: self._root}
        self._users: dict[tuple[str, str], Share] = {}
        if (ROOT, ROOT) not in {(entry.account, entry.user) for entry in associations}:
            self._add_user(ROOT, ROOT, 1)
        waiting = [entry for entry in associations if not entry.user]
        while waiting:
            for entry in [entry for entry in waiting if entry.parent in self._accounts]:
                account = self._accounts[entry.parent]
                if entry.shares is not None:
                    above = account
                    account = Share(entry.account, is_user=False, shares=entry.shares)
                    self._attach(account, above)
                self._accounts[entry.account] = account
                waiting.remove(entry)
        for entry in associations:
            if entry.user:
                self._add_user(entry.account, entry.user, entry.shares)
        self._normalise()

    def of(self, account: str, user: str) -> Share:
        """Return the association of a user; one that is not described gets one share."""
        found = self._users.get((account, user))
        if found is None:
            if account not in self._accounts:
                made = Share(account, is_user=False, shares=1)
                self._attach(made, self._root)
                self._accounts[account] = made
            found = self._add_user(account, user, 1)
            self._normalise()
        return found

    def renew(self, elapsed_s: float, running: list[tuple[Share, float, float]]) -> None:
        """Decay, book what is running, and compute the factors.

        Parameters
        ----------
        elapsed_s : float, seconds
            Since the last renewal.
        running : list of (Share, float, float)
            User, seconds run since the last renewal or the start, and billing units.
        """
        if not self._tree and self._lag:
            self._classic()
        self._decay(self._root, self._keep**elapsed_s)
        for share, ran_s, billing in running:
            self.book(share, ran_s * self._keep**ran_s * billing)
        if self._tree:
            self._rank()
        elif not self._lag:
            self._classic()

    def reset(self) -> None:
        """Forget all usage."""
        self._decay(self._root, 0.0)

    def book(self, share: Share, used: float) -> None:
        """Add usage to a user and to all accounts above."""
        at: Share | None = share
        while at is not None:
            at.usage += used
            at = at.parent

    def _add_user(self, account: str, user: str, shares: int | None) -> Share:
        made = Share(user, is_user=True, shares=shares)
        self._attach(made, self._accounts[account])
        self._users[account, user] = made
        return made

    def _attach(self, child: Share, parent: Share) -> None:
        child.parent = parent
        parent.children.append(child)

    def _normalise(self) -> None:
        def below(parent: Share) -> None:
            total = sum([child.shares or 0 for child in parent.children])
            for child in parent.children:
                part = 1.0 if child.shares is None else child.shares / total if total else 0.0
                child.normal = parent.normal * part
                below(child)

        below(self._root)

    def _decay(self, at: Share, keep: float) -> None:
        at.usage *= keep
        for child in at.children:
            self._decay(child, keep)

    def _classic(self) -> None:
        whole = self._root.usage

        def below(parent: Share) -> None:
            total = sum([child.shares or 0 for child in parent.children])
            for child in parent.children:
                used = child.usage / whole if whole else 0.0
                if child.shares is None:
                    child.effective = parent.effective
                elif parent is self._root:
                    child.effective = used
                else:
                    part = child.shares / total if total else 0.0
                    child.effective = used + (parent.effective - used) * part
                child.factor = (
                    2.0 ** -(child.effective / child.normal / self._dampening)
                    if child.normal
                    else 0.0
                )
                below(child)

        below(self._root)

    def _rank(self) -> None:
        """Rank all users by Fair Tree: ties share a rank, and accounts that tie are one."""
        count = len(self._users)
        rank = left = count

        def level(child: Share, siblings: list[Share]) -> float:
            if child.shares == 0:
                return 0.0
            if child.shares is None or not child.usage:
                return inf
            shares = sum([one.shares or 0 for one in siblings])
            used = sum([one.usage for one in siblings])
            return (child.shares / shares) / (child.usage / used)

        def below(groups: list[list[Share]], *, is_tied: bool) -> None:
            nonlocal rank, left
            found = [(level(child, siblings), child) for siblings in groups for child in siblings]
            found.sort(key=lambda item: (-item[0], not item[1].is_user))
            at = 0
            while at < len(found):
                value, child = found[at]
                is_tied = is_tied if at == 0 else value == found[at - 1][0]
                end = at + 1
                if child.is_user:
                    rank = rank if is_tied else left
                    child.factor = rank / count
                    left -= 1
                else:
                    while end < len(found) and found[end][0] == value:
                        end += 1
                    below([one.children for _, one in found[at:end]], is_tied=is_tied)
                at = end

        below([self._root.children], is_tied=False)


def kept_in_a_second(half_life_s: float) -> float:
    """Return what is left of usage after a second; 1 = it is never forgotten (0 and inf)."""
    return max(0.0, 1.0 - 0.693 / half_life_s) if 0 < half_life_s < inf else 1.0


def read_usage(text: str) -> Iterator[tuple[str, str, float]]:
    """Yield account, user and used billing seconds of what ``sshare -alP`` prints; accounts hold
    those of their users.

    Raises
    ------
    ParameterError
        If it has no columns Account, User and RawUsage, or a usage is no number.
    """
    rows = [line.split("|") for line in text.splitlines() if line.strip()]
    if not rows:
        return
    head = [cell.strip().lower() for cell in rows[0]]
    if not {"account", "user", "rawusage"} <= set(head):
        raise ParameterError(
            "The usage at the start lacks a column Account, User or RawUsage. Export it by sshare"
            " -alP."
        )
    for number, cells in enumerate(rows[1:], 2):
        row = {key: cell.strip() for key, cell in zip(head, cells, strict=False)}
        if not row.get("user"):
            continue
        try:
            yield row["account"], row["user"], float(row.get("rawusage") or 0)
        except ValueError as error:
            raise ParameterError(
                f"The usage at the start, line {number}: RawUsage={row['rawusage']!r:.30} is no"
                " number."
            ) from error

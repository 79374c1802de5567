"""Fair share of users and accounts (priority/multifactor): classic and Fair Tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter

from sim.contract import ParameterError

ROOT = "root"


@dataclass(frozen=True)
class Association:
    """An account, or a user of an account (`user` not empty).

    Without shares (Fairshare=parent) an account is merged into its parent, and a user has the
    factor of the account.
    """

    account: str
    user: str
    parent: str
    shares: int | None = 1


@dataclass(slots=True, eq=False)
class Share:
    """A node of the fair-share tree: an account or a user.

    Attributes
    ----------
    shares : int or None
        None = a user with Fairshare=parent.
    usage : float
        Decayed billing units x seconds.
    normal : float
        Normalized shares: part of the cluster.
    effective : float
        Classic: effective usage as a part of all usage.
    factor : float
        Fair-share factor from 0 to 1; 1 = no usage.
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
    """The tree of accounts and users with usage and factors.

    Parameters
    ----------
    associations : sequence of Association
        Accounts and users. A user without one gets one share at the first job. User root gets one
        share next to the accounts unless it is listed.
    half_life_s : float, seconds
        Half-life of usage; inf = no decay.
    dampening : float
        Dampening of the classic factor.
    tree : bool
        Fair Tree instead of the classic factor.
    lag : bool
        The classic factor uses the usage before a renewal, as in Slurm.

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
        self._keep = usage_decay_per_s(half_life_s)
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

    def user_share(self, account: str, user: str) -> Share:
        """Return the share of a user; create missing users and accounts with one share."""
        share = self._users.get((account, user))
        if share is None:
            if account not in self._accounts:
                node = Share(account, is_user=False, shares=1)
                self._attach(node, self._root)
                self._accounts[account] = node
            share = self._add_user(account, user, 1)
        return share

    def renew(self, elapsed_s: float, running: list[tuple[Share, float, float]]) -> None:
        """Decay usage, book the usage of running jobs, and compute the factors.

        Parameters
        ----------
        elapsed_s : float, seconds
            Time since the last renewal.
        running : list of (Share, float, float)
            User, seconds run since the last renewal or the start, and billing units.
        """
        if not self._tree and self._lag:
            self._compute_classic()
        self._decay(self._root, self._keep**elapsed_s)
        for share, ran_s, billing in running:
            self.book(share, ran_s * self._keep**ran_s * billing)
        if self._tree:
            self._rank_fair_tree()
        elif not self._lag:
            self._compute_classic()

    def reset(self) -> None:
        """Reset all usage to 0."""
        self._decay(self._root, 0.0)

    def book(self, share: Share, used: float) -> None:
        """Add usage to a user and all accounts above."""
        node: Share | None = share
        while node is not None:
            node.usage += used
            node = node.parent

    def _add_user(self, account: str, user: str, shares: int | None) -> Share:
        """Add a user to an account."""
        node = Share(user, is_user=True, shares=shares)
        self._attach(node, self._accounts[account])
        self._users[account, user] = node
        return node

    def _attach(self, child: Share, parent: Share) -> None:
        """Link a node and its parent in both directions."""
        child.parent = parent
        parent.children.append(child)

    def _decay(self, node: Share, factor: float) -> None:
        """Multiply the usage of a subtree by a factor."""
        node.usage *= factor
        for child in node.children:
            if child.children:
                self._decay(child, factor)
            else:
                child.usage *= factor

    def _compute_classic(self) -> None:
        """Set normalized shares, effective usage and factor of all nodes (classic algorithm)."""
        total_usage = self._root.usage

        def visit(parent: Share) -> None:
            """Set normalized shares, effective usage and factor of all nodes below a parent."""
            total = sum([child.shares or 0 for child in parent.children])
            for child in parent.children:
                part = 1.0 if child.shares is None else child.shares / total if total else 0.0
                child.normal = parent.normal * part
                used = child.usage / total_usage if total_usage else 0.0
                if child.shares is None:
                    child.effective = parent.effective
                elif parent is self._root:
                    child.effective = used
                else:
                    child.effective = used + (parent.effective - used) * part
                child.factor = (
                    2.0 ** -(child.effective / child.normal / self._dampening)
                    if child.normal
                    else 0.0
                )
                visit(child)

        visit(self._root)

    def _rank_fair_tree(self) -> None:
        """Set the factor of each user to rank / users, ranked by Fair Tree.

        Tied users share a rank, and the members of tied accounts are ranked together.
        """
        count = len(self._users)
        rank = left = count

        def levels(siblings: list[Share]) -> list[float]:
            """Return the level fair shares: part of shares / part of usage among siblings.

            0 without shares; inf without usage or with Fairshare=parent.
            """
            shares = sum([one.shares or 0 for one in siblings])
            used = sum([one.usage for one in siblings])
            return [
                0.0
                if one.shares == 0
                else inf
                if one.shares is None or not one.usage
                else (one.shares / shares) / (one.usage / used)
                for one in siblings
            ]

        def visit(groups: list[list[Share]], *, is_tied: bool) -> None:
            """Rank the users in groups of siblings and below, highest level fair share first.

            With `is_tied`, the first user shares the previous rank.
            """
            nonlocal rank, left
            ranked = [
                pair for siblings in groups for pair in zip(levels(siblings), siblings, strict=True)
            ]
            ranked.sort(key=lambda item: not item[1].is_user)
            ranked.sort(key=itemgetter(0), reverse=True)
            at = 0
            while at < len(ranked):
                value, child = ranked[at]
                is_tied = is_tied if at == 0 else value == ranked[at - 1][0]
                end = at + 1
                if child.is_user:
                    rank = rank if is_tied else left
                    child.factor = rank / count
                    left -= 1
                else:
                    while end < len(ranked) and ranked[end][0] == value:
                        end += 1
                    visit([one.children for _, one in ranked[at:end]], is_tied=is_tied)
                at = end

        visit([self._root.children], is_tied=False)


def usage_decay_per_s(half_life_s: float) -> float:
    """Return the decay factor of usage per second; 1 = no decay (half-life 0 or inf)."""
    return max(0.0, 1.0 - 0.693 / half_life_s) if 0 < half_life_s < inf else 1.0


def read_usage(text: str) -> Iterator[tuple[str, str, float]]:
    """Yield (account, user, billing seconds) from the output of ``sshare -alP``.

    Rows of accounts without a user are skipped.

    Raises
    ------
    ParameterError
        If a column Account, User or RawUsage is missing, or a usage is no number.
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

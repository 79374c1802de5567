"""Lists of hosts, there and back."""

from __future__ import annotations

import pytest

from sim.host_lists import compress_hosts, expand_hosts


@pytest.mark.parametrize(
    ("hosts", "written"),
    [
        (["n1", "n2", "n3"], "n[1-3]"),
        (["gpu008", "gpu009", "gpu010", "gpu020"], "gpu[008-010],gpu020"),
        (["n9", "n10"], "n9,n10"),
        (["login", "a1", "a2", "b2", "b3"], "login,a[1-2],b[2-3]"),
        (["n0"], "n0"),
        (["n2", "n1"], "n2,n1"),
        ([], ""),
    ],
)
def test_hosts_are_written_so_that_they_read_back(hosts: list[str], written: str) -> None:
    assert compress_hosts(hosts) == written
    assert (expand_hosts(written, "x") if written else []) == hosts

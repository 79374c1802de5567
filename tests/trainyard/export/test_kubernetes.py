"""What of a changed configuration of Kueue is written down, and that it is the change."""

from __future__ import annotations

import random

import pytest

from allocators.sites.kueue.files import read_config, write_config
from allocators.sites.manifests import parse_manifests
from sim.errors import ParameterError
from tests.allocators.sites.test_kueue_files import SITE, changed, drawn
from trainyard.export.kubernetes import patch


def applied(before: str, change: str) -> str:
    """What kubectl would have in the end."""
    objects = {(one.kind, one.namespace, one.name): one.source for one in parse_manifests(before)}
    for one in parse_manifests(change):
        objects[one.kind, one.namespace, one.name] = one.source
    for line in change.splitlines():
        if "kubectl delete" in line:
            kind, name, *more = line.partition("kubectl delete ")[2].split()
            space = more[1] if more else ""
            gone = [key for key in objects if (key[0].lower(), *key[1:]) == (kind, space, name)]
            del objects[gone[0]]
        elif "the Configuration" in line:
            del objects["Configuration", "", ""]
    return "---\n".join(objects.values())


def test_only_what_differs_is_written_with_the_old_value() -> None:
    after = changed("nominalQuota: 8,", "nominalQuota: 12,")
    text = patch(SITE, after, ["Simulated  on a\nweek."])
    assert text.startswith("# Simulated on a week.\n# Review: kubectl diff")
    assert (
        "# spec.resourceGroups[0].flavors[0].resources[1].nominalQuota: 8 -> 12\n"
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: no}\n"
    ) in text
    [one] = parse_manifests(text)
    assert one.name == "no"
    assert read_config(applied(SITE, text)) == read_config(after)


def test_keys_that_are_not_simulated_stay_as_they_are() -> None:
    after = changed("accelerator: nvidia-a100", "accelerator: nvidia-h100")
    text = patch(SITE, after, [])
    assert "nodeTaints: [{key: gpu, effect: NoSchedule}]" in text
    assert "# spec.nodeLabels.accelerator: nvidia-a100 -> nvidia-h100" in text


def test_new_and_deleted_objects_are_told() -> None:
    extra = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: b}\n"
    assert f"# New.\n{extra}" in patch(SITE, f"{SITE}---\n{extra}", [])
    without = changed("- {apiVersion: v1, kind: Namespace, metadata: {name: team-a}}\n", "")
    assert "kubectl delete namespace team-a" in patch(SITE, without, [])


def test_nothing_to_take_home() -> None:
    with pytest.raises(ParameterError, match="the same objects"):
        patch(SITE, SITE, [])


@pytest.mark.parametrize("seed", range(20))
def test_a_patch_makes_the_old_configuration_the_new_one(seed: int) -> None:
    rng = random.Random(seed)
    before, after = write_config(drawn(rng)), write_config(drawn(rng))
    if before != after:
        again = read_config(applied(before, patch(before, after, ["x"])))
        assert {one.name: one for one in again.queues} == {
            one.name: one for one in read_config(after).queues
        }, f"seed {seed}"
        wanted = read_config(after)
        assert sorted(map(repr, again.cohorts)) == sorted(map(repr, wanted.cohorts))
        assert sorted(again.local_queues) == sorted(wanted.local_queues)
        assert sorted(again.flavors) == sorted(wanted.flavors)


def test_settings_of_the_controller_are_no_object() -> None:
    text = patch(SITE, changed("enable: true", "enable: false"), [])
    assert parse_manifests(text) == ()
    assert "# fairSharing.enable: true -> false\n#   {apiVersion: config" in text
    assert "ConfigMap" in text

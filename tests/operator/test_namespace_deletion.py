"""A namespace is deleted with objects of `deletionPolicy: Delete` and without a replica."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.handlers.harness import OperatorHarness
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.handlers.deletion.table_deletion import TIMEOUT_MS, TableDeleter
from tidemark_operator.handlers.deletion.tombstones import TableAddress
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS, REVISIONS, Kube
from tidemark_protocol.ids import ShardId

pytestmark = [pytest.mark.cluster, pytest.mark.broad]
LEFT = TableAddress(ShardId("u/1"), "/data/ns/d/v/v1")
HELD = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["tests.local/held"]}}


@pytest.fixture
def ending(kinds_installed: ControlPlane, namespace: str) -> Iterator[str]:
    """A namespace that is being deleted, and held."""
    kinds_installed.kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(HELD))
    kinds_installed.kubectl("delete", "namespace", namespace, "--wait=false")
    yield namespace
    kinds_installed.kubectl(
        "patch", "configmap/held", "-n", namespace, "--type=merge", "--patch", '{"metadata": {"finalizers": null}}'
    )


def deleted(plane: ControlPlane, namespace: str) -> tuple[bool, list[Any]]:
    """Whether an object may go whose table nobody has deleted in time, and the tombstones there are then."""

    async def scenario() -> tuple[bool, list[Any]]:
        harness = OperatorHarness()
        async with Kube.connect(plane.kubeconfig) as kube:
            deleter = TableDeleter(kube, harness.fleet, harness.context.registry, harness.cache)
            may_go = await deleter.delete(Key(DATAFLOWS, namespace, "d"), "u", None, [LEFT], TIMEOUT_MS)
            tombstones = await kube.list(REVISIONS, namespace=namespace)
        await harness.fleet.close()
        return may_go, tombstones

    return asyncio.run(scenario())


def test_an_object_goes_with_its_namespace_which_takes_no_tombstone(
    kinds_installed: ControlPlane, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It would hold the namespace for ever. Where its tables are stands in the log."""
    with caplog.at_level(logging.WARNING):
        assert deleted(kinds_installed, ending) == (True, [])

    assert LEFT.location in caplog.text


def test_elsewhere_a_tombstone_is_left(kinds_installed: ControlPlane, namespace: str) -> None:
    """A namespace that stays."""
    may_go, tombstones = deleted(kinds_installed, namespace)

    assert may_go
    assert [shard["location"] for body in tombstones for shard in body["data"]["shards"]] == [LEFT.location]

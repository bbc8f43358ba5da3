"""A place that waits for the deletion of another table: the text names who deletes it, and what to do."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.handlers.deletion.tombstones import Buried
from tests.handlers.harness import READABLE, UNREADABLE, OperatorHarness
from tests.resources.manifests import body
from tidemark_operator.errors import Waiting
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter
from tidemark_operator.handlers.reconcile.instance import prepare_instance
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import INSTANCES
from tidemark_protocol.ids import ReplicaId

ALLOWS: dict[str, Any] = {"storage": {"location": "/data"}, "publish": {"locations": ["/lake"]}}
STORES: dict[str, Any] = {"storage": {"location": "/lake"}}
BAD_PREFIX: dict[str, Any] = {"storage": {"location": "/data"}, "publish": {"locations": ["/a b"]}}
NOBODY = (
    "no ComputeInstance of namespace {} keeps or publishes tables there: create one that does, with a replica, or "
    "delete ControllerRevision tombstone-old, and the table stays"
)
LISTED = " (ControllerRevision tombstone-old)"


def instance(harness: OperatorHarness, name: str, spec: dict[str, Any], namespace: str = "ns") -> None:
    key = Key(INSTANCES, namespace, name)
    harness.cache.put(key, body("ComputeInstance", spec, name, namespace=namespace, uid=f"u-{name}"))
    prepare_instance(harness.context, key)


def reason_to_wait(
    harness: OperatorHarness, namespace: str, published_by: str = "", asked_from: str = "", online: str = ""
) -> str:
    """The reason why /lake/spent/more waits, asked from `asked_from`, where a tombstone of the namespace lists
    /lake/spent. `online`: an instance of the namespace with a replica."""
    buried = Buried("/lake/spent")
    buried.spaces = [namespace]
    buried.bodies[0]["metadata"]["namespace"] = namespace
    if published_by:
        buried.bodies[0]["data"]["shards"][0]["instance"] = published_by

    async def scenario() -> str:
        if online:
            running = harness.context.running(namespace, online)
            assert running is not None
            running.attach(ReplicaId("r1"), "unix:///nowhere/at/all")
            running.replicas[ReplicaId("r1")].online = True
            cast(Any, running.core).send_to = lambda _, command: buried.deleted.append(command.id)
        tables = TableDeleter(cast(Any, buried), harness.fleet, harness.context.registry, harness.cache)
        asker = asked_from or namespace
        texts = set[str]()
        for _ in range(3):
            with pytest.raises(Waiting) as waiting:
                await tables.finish(asker, "/lake/spent/more", everywhere=True)
            texts.add(str(waiting.value))
        await harness.fleet.close()
        (text,) = texts
        asked = ", of which a replica was asked" if buried.deleted else ""
        return f"{text}{asked}"

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("instances", "published_by", "who"),
    [
        pytest.param(
            {"other": ALLOWS, "third": ALLOWS},
            "other",
            "ComputeInstance other, which published it, deletes it: start a replica of the instance, or delete the "
            f"instance{LISTED}",
            id="its instance has no replica",
        ),
        pytest.param(
            {"other": READABLE, "third": ALLOWS},
            "other",
            "ComputeInstance other, which published it, no longer allows that place: put it back into "
            f"publish.locations, or delete the instance{LISTED}",
            id="its instance's prefix is withdrawn",
        ),
        pytest.param(
            {"other": BAD_PREFIX, "third": ALLOWS},
            "other",
            "this version of the operator cannot read ComputeInstance other, which deletes it: mend the "
            f"instance{LISTED}",
            id="its instance cannot be read",
        ),
        pytest.param(
            {"third": ALLOWS},
            "other",
            f"ComputeInstance third deletes it: start a replica of the instance{LISTED}",
            id="its instance is gone, another one sees the place",
        ),
        pytest.param(
            {"third": STORES},
            "",
            f"ComputeInstance third deletes it: start a replica of the instance{LISTED}",
            id="an older tombstone, which names none",
        ),
        pytest.param(
            {"third": READABLE, "unread": UNREADABLE},
            "other",
            f"this version of the operator cannot read ComputeInstance unread, which may delete it: mend the instance"
            f"{LISTED}",
            id="an instance that cannot be read may be the one",
        ),
        pytest.param({}, "other", NOBODY.format("ns"), id="no instance is left"),
        pytest.param({"third": READABLE}, "", NOBODY.format("ns"), id="no instance sees the place"),
    ],
)
def test_the_text_says_who_deletes_the_table_and_what_to_do(
    instances: dict[str, dict[str, Any]], published_by: str, who: str
) -> None:
    harness = OperatorHarness()
    for name, spec in instances.items():
        instance(harness, name, spec)
    assert (
        reason_to_wait(harness, "ns", published_by)
        == f"waits until /lake/spent, whose object was deleted, is deleted too: {who}"
    )


def test_a_replica_that_runs_needs_no_advice() -> None:
    harness = OperatorHarness()
    instance(harness, "default", ALLOWS)
    assert reason_to_wait(harness, "ns", "default", online="default") == (
        "waits until /lake/spent, whose object was deleted, is deleted too: ComputeInstance default, which published "
        f"it, deletes it{LISTED}, of which a replica was asked"
    )


def test_the_log_says_once_who_deletes_the_table_of_another_namespace(caplog: pytest.LogCaptureFixture) -> None:
    """The condition names the ControllerRevision alone: whoever writes a Dataflow learns no names of other
    namespaces."""
    harness = OperatorHarness()
    instance(harness, "default", ALLOWS)
    with caplog.at_level("WARNING"):
        text = reason_to_wait(harness, "else", "theirs", asked_from="ns")
    assert text == (
        "waits until the table at /lake/spent/more of another namespace's Dataflow, which was deleted, is deleted too: "
        "ControllerRevision tombstone-old of that namespace lists it, and the operator's log says who deletes it"
    )
    (record,) = [each.getMessage() for each in caplog.records if "tombstone-old" in each.getMessage()]
    assert record == (
        f"ControllerRevision else/tombstone-old: /lake/spent is still to be deleted, and others wait for it: "
        f"{NOBODY.format('else')}"
    )


def test_an_instance_that_cannot_be_read_is_no_instance_that_is_gone() -> None:
    """After a start of the operator: another one may have another volume under that path, and would find nothing. So no
    replica of it is asked."""
    harness = OperatorHarness()
    instance(harness, "default", ALLOWS)
    instance(harness, "other", BAD_PREFIX)
    assert harness.context.running("ns", "other") is None
    assert reason_to_wait(harness, "ns", "other", online="default").endswith(f"mend the instance{LISTED}")
    gone = OperatorHarness()
    instance(gone, "default", ALLOWS)
    assert reason_to_wait(gone, "ns", "other", online="default").endswith(
        f"deletes it{LISTED}, of which a replica was asked"
    )

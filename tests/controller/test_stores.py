"""What replicas say of their object store: kept while they are connected, and only where it makes sense."""

from __future__ import annotations

import pytest

from tests.controller.worlds import R1, R2, World
from tidemark_operator.resources.instance_conditions import StoreTrouble
from tidemark_protocol.ids import INSTANCE
from tidemark_protocol.responses import Status

DENIED = {"reason": "AccessDenied", "message": "403"}


def test_trouble_stands_until_the_replica_says_otherwise_or_goes() -> None:
    """Of each replica its own; nobody is told, as statuses are looked at all the time."""
    world = World(upper=900)
    world.connect(R1, R2)
    for replica in (R2, R1):
        assert world.hear(replica, Status(INSTANCE, "storage", DENIED)) == []
    stores = world.instance.stores
    assert stores.troubles == tuple(StoreTrouble(r, "AccessDenied", "403") for r in (R1, R2))
    world.hear(R1, Status(INSTANCE, "storage", {}))
    assert [trouble.replica for trouble in stores.troubles] == [R2]
    world.instance.disconnect(R2)
    assert stores.troubles == ()


@pytest.mark.parametrize(
    ("kind", "fields", "kept"),
    [
        ("weather", DENIED, None),
        ("storage", {"message": "x" * 100_000}, None),
        ("storage", {"message": "no", "reason": "no reason at all!"}, "Failed"),
        ("storage", {"message": "no"}, "Failed"),
    ],
)
def test_what_makes_no_sense_is_not_kept_and_no_reason_is_made_up(
    kind: str, fields: dict[str, str], kept: str | None
) -> None:
    """A reason becomes part of a condition, which the API server checks."""
    world = World(upper=900)
    world.connect(R1)
    world.hear(R1, Status(INSTANCE, kind, fields))
    assert [trouble.reason for trouble in world.instance.stores.troubles] == ([kept] if kept else [])

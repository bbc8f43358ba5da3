"""A replica whose scratch has an end says so before it is there, and goes on where there is room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replica.conversations import reaches, started, unique
from tests.replica.plans import copies
from tests.replica.process import ReplicaProcess, ScriptedClient, epochs
from tests.replica.tables import Table
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.commands import AllowCompaction, InstanceConfig
from tidemark_protocol.messages.responses import Failure, FailureKind, Response
from tidemark_replica.process.scratch_quota import disk_usage

pytestmark = pytest.mark.spark

MIB = 1 << 20
SIZE = 128 * MIB
WIDE, ROWS = 32 * 1024, 2048
"""A view takes 64 MiB, and arrangements may take 112. An arrangement that does not fit is not written: so scratch as a
whole is never scarce, whenever it is looked at. Tests of that case are in tests/arrangement/spines/test_store.py and
tests/render."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ScriptedClient]:
    process = ReplicaProcess(tmp_path, "--cores", "2", "--driver-memory", "1g", "--scratch-size", str(SIZE))
    client = ScriptedClient(process.address)
    client.be_served(next(epochs()), InstanceConfig("default", str(tmp_path)))
    yield client
    client.close()
    process.close()


def failed(id: GlobalId, responses: list[Response]) -> list[str]:
    """The failures that it reported of its steps."""
    failures = [r for r in responses if isinstance(r, Failure) and (r.id, r.kind) == (id, FailureKind.STEP)]
    return [failure.message for failure in failures]


def test_a_view_that_has_no_room_waits_for_it(client: ScriptedClient, tmp_path: Path) -> None:
    """Two that fit one by one do not fit together: the second says what to do, the others go on, and when the first is
    dropped it hydrates. Never is more taken than there is."""
    small, wide = Table(tmp_path, "small"), Table(tmp_path, "wide")
    small.append(10, ((1, "a"), 3, 1))
    wide.append(10, *(((n, f"{n}" + "x" * WIDE), 3, 1) for n in range(ROWS)))
    views = [copies(unique("d"), 6, source=of.metadata, index=unique("i")) for of in (small, wide, wide)]
    follower, first, second = (view.export_ids[0] for view in views)
    client.send(*started(*views[:2]))
    client.wait_for(reaches("output", first, 10))
    client.wait_for(reaches("output", follower, 10))

    client.send(*started(views[2]))
    (responses, *_) = client.wait_for(lambda responses: failed(second, responses))
    assert "give the replica more scratch" in responses
    small.append(20, ((2, "b"), 12, 1))
    client.wait_for(reaches("output", follower, 20))
    assert not failed(follower, client.responses)
    assert disk_usage(tmp_path / "scratch") < SIZE

    client.send(AllowCompaction(first, Frontier.empty()))
    client.wait_for(reaches("output", second, 10))

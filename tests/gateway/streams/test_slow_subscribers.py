"""Subscribers that read too slowly or not at all end with the time from which to go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.controller.harness import at
from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.errors import SubscribeBehind
from tidemark_operator.fleet.clients.subscription import Backlog, Subscription
from tidemark_operator.gateway.streams import subscribe
from tidemark_operator.gateway.streams.subscribe import BatchSender, GrpcSubscriber
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import SubscribeBatch
from tidemark_protocol.pb.gateway_pb2 import SubscribeRequest

AS_OF = 100


def batch(lower: int, upper: Frontier, data: bytes = b"rows", part: int = 0) -> SubscribeAdvanced:
    return SubscribeAdvanced(GlobalId("s"), SubscribeBatch(at(lower), upper, data, upper_part=part), (at(lower), 0))


class Client:
    """Takes so many messages, and one more for each time that it is let."""

    def __init__(self, takes: int) -> None:
        self.lets, self.offered = asyncio.Semaphore(takes), asyncio.Event()
        self.uppers: list[int] = []

    async def write(self, message: Any) -> None:
        if self.lets.locked():
            self.offered.set()
        await self.lets.acquire()
        self.uppers.append(message.batch.upper)


def begin(client: Client, *news: SubscribeAdvanced) -> tuple[Subscription, asyncio.Task[None]]:
    """A subscribe for which eight bytes may wait."""
    subscription = Subscription(lambda: None, Backlog(8))
    for each in news:
        subscription.put(each)
    sender = BatchSender(GrpcSubscriber(client, SubscribeRequest(subject="t", parts=True)), subscription, AS_OF)
    return subscription, asyncio.create_task(sender.send())


def overflow(subscription: Subscription) -> None:
    for lower in (500, 501, 502):
        subscription.put(batch(lower, at(lower + 1)))


@pytest.mark.parametrize(
    ("upper", "part", "says"),
    [
        (at(120), 0, "up to 119: continue with --as-of 119 --no-snapshot"),
        (at(120), 7, "up to 119: continue with --as-of 119 --no-snapshot"),
        (at(101), 0, "up to 100: continue with --as-of 100 --no-snapshot"),
        (at(100), 7, "does not have the whole snapshot"),
    ],
    ids=["between times", "within a time", "after the snapshot", "within the snapshot"],
)
def test_a_dropped_idle_subscriber_gets_the_time_to_resume(
    upper: Frontier, part: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All before it has been told, of times that were told whole; what it was offered last it never took."""
    monkeypatch.setattr(subscribe, "CHUNK_SECONDS", 0.01)

    async def story() -> None:
        client = Client(takes=1)
        subscription, telling = begin(client, batch(0, upper, part=part))
        subscription.put(batch(400, at(401)))
        await client.offered.wait()
        overflow(subscription)
        with pytest.raises(SubscribeBehind, match=says):
            await telling
        assert client.uppers == [upper.encode()]

    asyncio.run(story())


def test_a_batch_read_late_counts_as_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that goes on gets nothing twice."""
    monkeypatch.setattr(subscribe, "CHUNK_SECONDS", 60.0)

    async def story() -> None:
        client = Client(takes=0)
        subscription, telling = begin(client, batch(0, at(120)))
        await client.offered.wait()
        overflow(subscription)
        client.lets.release()
        with pytest.raises(SubscribeBehind, match=r"reads too slowly: 12 bytes .* --as-of 119 --no-snapshot"):
            await telling

    asyncio.run(story())


def test_a_subscriber_dropped_within_a_batch_gets_no_more_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """However quickly it takes the rest, of which there may be 62 MiB; what it has of it counts for nothing."""
    monkeypatch.setattr(subscribe, "CHUNK_SECONDS", 60.0)
    monkeypatch.setattr(subscribe, "CHUNK_BYTES", 1)

    async def story() -> None:
        client = Client(takes=1)
        subscription, telling = begin(client, batch(0, at(120)))
        await client.offered.wait()
        overflow(subscription)
        for _ in range(10):
            client.lets.release()
        with pytest.raises(SubscribeBehind, match="does not have the whole snapshot"):
            await telling
        assert client.uppers == [120, 120]

    asyncio.run(story())


def test_an_idle_subscriber_that_is_not_behind_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as it wants."""
    monkeypatch.setattr(subscribe, "CHUNK_SECONDS", 0.0)

    async def story() -> None:
        client = Client(takes=0)
        _, telling = begin(client, batch(0, at(120)), batch(120, Frontier.empty()))
        await client.offered.wait()
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not telling.done()
        client.lets.release()
        client.lets.release()
        await telling

    asyncio.run(story())

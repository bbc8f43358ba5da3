"""The fair queue: units are bounded, per caller too, and waiting requests are granted in turn."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.waiting import BOUND
from tidemark_operator.errors import TooMany
from tidemark_operator.gateway.admission import fair_queue
from tidemark_operator.gateway.admission.fair_queue import PLACE_LISTENER, FairQueue


def room_of(size: int) -> FairQueue:
    """Bytes, for which any number of requests may wait."""
    return FairQueue("bytes", size, "try again", waiting=100)


async def entered(room: FairQueue, size: int, inside: list[str], name: str, leave: asyncio.Event, by: str = "") -> None:
    async with room.hold(by or name, size):
        inside.append(name)
        await leave.wait()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_call_waits_for_room_and_comes_in_when_another_needs_less() -> None:
    """An answer that is small frees what was kept for a large one."""

    async def play() -> None:
        room, inside, leave = room_of(100), list[str](), asyncio.Event()
        async with room.hold("zeroth", 50), room.hold("first", 30) as first:
            second = asyncio.create_task(entered(room, 40, inside, "second", leave))
            await settled()
            assert inside == []
            first.shrink(40)  # never more than before
            assert room.free == 20
            first.shrink(10)
            await settled()
            assert inside == ["second"]
            assert room.free == 0
        leave.set()
        await second
        assert room.free == 100

    asyncio.run(play())


def test_calls_come_in_in_the_order_of_asking() -> None:
    """A small one does not overtake a large one, which would wait for ever."""

    async def play() -> None:
        room, inside, leave = room_of(100), list[str](), asyncio.Event()
        async with room.hold("a", 40), room.hold("b", 40):
            tasks = [
                asyncio.create_task(entered(room, size, inside, name, leave))
                for name, size in (("large", 50), ("small", 10))
            ]
            await settled()
            assert inside == []
        await settled()
        assert inside == ["large", "small"]
        leave.set()
        await asyncio.gather(*tasks)
        assert room.free == 100

    asyncio.run(play())


@pytest.mark.parametrize("turn_has_come", [False, True])
def test_a_call_that_is_given_up_while_it_waits_holds_nothing(turn_has_come: bool) -> None:
    """Also in the moment in which its turn comes; and whoever waits behind it comes in."""

    async def play() -> None:
        room, inside, leave = room_of(100), list[str](), asyncio.Event()
        async with room.hold("a", 40), room.hold("b", 40) as first:
            given_up = asyncio.create_task(entered(room, 50, inside, "given up", leave))
            behind = asyncio.create_task(entered(room, 20, inside, "behind", leave))
            await settled()
            if turn_has_come:
                first.shrink(0)
            given_up.cancel()
            await settled()
            assert inside == ["behind"]
        leave.set()
        await behind
        assert given_up.cancelled()
        assert room.free == 100

    asyncio.run(play())


def test_a_request_above_the_callers_share_takes_the_whole_share() -> None:
    """It must not wait for ever."""

    async def play() -> None:
        room = room_of(10)
        async with room.hold("anne", 1000):
            assert room.free == 5
        assert room.free == 10

    asyncio.run(play())


def test_a_caller_with_half_of_the_queue_keeps_no_other_out() -> None:
    """However much it asks for, and however long it stays: what waits comes in when something of its own goes."""

    async def play() -> None:
        room, inside, leave, one = room_of(100), list[str](), asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(entered(room, 25, inside, "anne 0", one, "anne"))
        asked = [asyncio.create_task(entered(room, 25, inside, f"anne {n}", leave, "anne")) for n in range(1, 9)]
        await settled()
        assert (inside, room.free) == (["anne 0", "anne 1"], 50)
        async with room.hold("bob", 50):
            assert room.free == 0
            one.set()
            await first
            await settled()
            assert inside == ["anne 0", "anne 1", "anne 2"]
        leave.set()
        await asyncio.gather(*asked)
        assert (room.free, len(inside)) == (100, 9)
        assert not room.is_wanted("")

    asyncio.run(play())


def test_callers_come_in_in_turn() -> None:
    """One who asked for much before waits behind another's first."""

    async def play() -> None:
        room, inside = room_of(4), list[str]()
        begun = [asyncio.Event() for _ in range(2)]
        async with room.hold("carl", 2), room.hold("dora", 2):
            asked = [
                asyncio.create_task(entered(room, 1, inside, name, begun[0], name.split()[0]))
                for name in ("anne 1", "anne 2", "anne 3", "bob 1", "bob 2")
            ]
            await settled()
            assert inside == []
        await settled()
        assert inside == ["anne 1", "bob 1", "anne 2", "bob 2"]
        begun[0].set()
        await asyncio.gather(*asked)

    asyncio.run(play())


def test_a_waiting_request_asks_only_holders_that_can_free_it() -> None:
    """One who waits for its own half wants nothing of others: they would be told to ask again for nothing."""

    async def play() -> None:
        room, inside, leave = room_of(4), list[str](), asyncio.Event()
        async with room.hold("anne", 2) as annes, room.hold("bob", 1) as bobs:
            waiting = [asyncio.create_task(entered(room, 1, inside, "anne", leave))]
            await settled()
            assert (annes.is_wanted, bobs.is_wanted) == (True, False)
            waiting.append(asyncio.create_task(entered(room, 2, inside, "carl", leave)))
            await settled()
            assert (annes.is_wanted, bobs.is_wanted) == (True, True)
            assert inside == []
        leave.set()
        await asyncio.gather(*waiting)

    asyncio.run(play())


def test_without_room_to_wait_a_request_is_refused_at_once() -> None:
    """No caller has more than half; and all together no more than there are."""

    async def play() -> None:
        copies = FairQueue("copies", 4, "try again")
        async with copies.hold("anne"), copies.hold("anne"):
            with pytest.raises(TooMany, match=r"2 copies of anne run already, .*: try again"):
                await copies.acquire("anne")
            async with copies.hold("bob"):
                async with copies.hold("carl"):
                    with pytest.raises(TooMany, match="4 copies run already"):
                        await copies.acquire("dora")
                async with copies.hold("dora"):
                    pass
        async with copies.hold("anne"), copies.hold("anne"):
            assert dict(copies._held) == {"anne": 2}
        assert (copies.free, dict(copies._held), dict(copies._waiting)) == (4, {}, {})

    asyncio.run(play())


def test_a_request_that_waits_has_a_deadline() -> None:
    """Its error says what is full; it leaves nothing in the queue, and the next is granted when there is room."""

    async def play() -> None:
        room = FairQueue("bytes", 2, "ask for less", share=2, waiting=9, deadline_seconds=0.01)
        async with room.hold("anne", 2):
            with pytest.raises(
                TooMany,
                match=r"no room among bytes for 0\.01 s, others hold it, and this one is at place 1 of 1: ask for less",
            ):
                await room.acquire("bob")
            assert not room._waiting
        async with room.hold("bob", 2):
            pass
        assert room.free == 2

    asyncio.run(play())


def test_a_request_that_waits_tells_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers are in turn, so the place is not the number of requests that came before; it is told when it changes."""
    monkeypatch.setattr(fair_queue, "PLACE_SECONDS", 0.01)
    settings: dict[str, list[str]] = {}

    async def waits(queue: FairQueue, caller: str, name: str, news: asyncio.Event) -> None:
        async def listen(place: str) -> None:
            settings.setdefault(name, []).append(place)
            news.set()

        PLACE_LISTENER.set(listen)
        await queue.acquire(caller)

    async def until_told(places: dict[str, str], news: asyncio.Event) -> None:
        wanted = {name: f"waiting at {place} among queries" for name, place in places.items()}
        while {name: sentences[-1] for name, sentences in settings.items() if name in wanted} != wanted:
            await news.wait()
            news.clear()

    async def play() -> None:
        queue, news = FairQueue("queries", 1, "wait", share=1, waiting=9, waiting_share=9), asyncio.Event()
        first = await queue.acquire("zoe")
        requests = (("anne", "a1"), ("anne", "a2"), ("bob", "b1"), ("anne", "a3"))
        async with asyncio.TaskGroup() as waiting:
            tasks = [waiting.create_task(waits(queue, *request, news)) for request in requests]
            places = {name: f"place {at} of 4" for at, name in enumerate(("a1", "b1", "a2", "a3"), 1)}
            await until_told(places, news)
            first.shrink(0)
            await until_told({"b1": "place 1 of 3"}, news)
            for task in tasks:
                task.cancel()
        assert all(len(set(sentences)) == len(sentences) for sentences in settings.values())

    asyncio.run(asyncio.wait_for(play(), BOUND))


def test_the_place_is_the_order_in_which_requests_are_granted() -> None:
    """The requests are random, of several callers."""
    random = Random(1)

    async def play() -> None:
        queue = FairQueue("queries", 1, "wait", share=1, waiting=99, waiting_share=99)
        hold = await queue.acquire("zoe")

        async def waits() -> None:
            (await queue.acquire(random.choice("abcd"))).shrink(0)

        waiting = [asyncio.create_task(waits()) for _ in range(40)]
        await asyncio.sleep(0)
        requests = [(caller, request) for caller, line in queue._waiting.items() for request in line]
        by_place = sorted(requests, key=lambda each: int(queue._describe_place(*each).split()[1]))
        futures = [request[1] for _, request in by_place]
        ended = list[int]()
        for at, future in enumerate(futures):
            future.add_done_callback(lambda _, at=at: ended.append(at))
        hold.shrink(0)
        await asyncio.gather(*waiting)
        assert ended == list(range(40))

    asyncio.run(asyncio.wait_for(play(), BOUND))

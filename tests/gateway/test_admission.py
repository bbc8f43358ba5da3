"""What is held of answers is bounded, and whoever waits comes in, in turn."""

from __future__ import annotations

import asyncio

import pytest

from tidemark_operator.gateway.admission import Room


async def entered(room: Room, size: int, inside: list[str], name: str, leave: asyncio.Event) -> None:
    async with room.reserved(size):
        inside.append(name)
        await leave.wait()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_call_waits_for_room_and_comes_in_when_another_needs_less() -> None:
    """An answer that is small frees what was kept for a large one."""

    async def play() -> None:
        room, inside, leave = Room(100), list[str](), asyncio.Event()
        async with room.reserved(80) as first:
            second = asyncio.create_task(entered(room, 80, inside, "second", leave))
            await settled()
            assert inside == []
            first.shrink(90)  # never more than before
            assert room.free == 20
            first.shrink(10)
            await settled()
            assert inside == ["second"]
            assert room.free == 10
        leave.set()
        await second
        assert room.free == 100

    asyncio.run(play())


def test_calls_come_in_in_the_order_of_asking() -> None:
    """A small one does not overtake a large one, which would wait for ever."""

    async def play() -> None:
        room, inside, leave = Room(100), list[str](), asyncio.Event()
        async with room.reserved(50):
            tasks = [
                asyncio.create_task(entered(room, size, inside, name, leave))
                for name, size in (("large", 90), ("small", 10))
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
        room, inside, leave = Room(100), list[str](), asyncio.Event()
        async with room.reserved(60) as first:
            given_up = asyncio.create_task(entered(room, 90, inside, "given up", leave))
            behind = asyncio.create_task(entered(room, 40, inside, "behind", leave))
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


def test_what_is_larger_than_all_the_room_takes_all_of_it() -> None:
    """It must not wait for ever."""

    async def play() -> None:
        room = Room(10)
        async with room.reserved(1000):
            assert room.free == 0
        assert room.free == 10

    asyncio.run(play())

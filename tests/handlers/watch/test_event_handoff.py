"""Events handed from one thread's loop to another's."""

from __future__ import annotations

import asyncio
import threading

from tests.waiting import BOUND
from tidemark_operator.handlers.watch.event_handoff import BATCH, EventHandoff
from tidemark_operator.kube.client import DATAFLOWS, Body, Resource

OBJECTS = 3 * BATCH + 1
VERSIONS = 20


def body(name: int, version: int, uid: str = "") -> Body:
    return {"metadata": {"name": f"d{name}", "uid": uid or f"u{name}", "resourceVersion": str(version)}}


def test_must_a_loop_that_is_held_up_gets_the_newest_of_each_object_and_others_have_their_turn() -> None:
    """Many events, while the loop does something else; then a turn for others after each so many."""

    async def scenario() -> None:
        taken = list[tuple[str, str]]()
        turns = list[int]()

        def observed(resource: Resource, seen: Body, deleted: bool) -> None:
            assert resource is DATAFLOWS
            assert not deleted
            taken.append((seen["metadata"]["name"], seen["metadata"]["resourceVersion"]))

        handover = EventHandoff(observed)

        def give() -> None:
            for version in range(VERSIONS):
                for name in range(OBJECTS):
                    handover.give(DATAFLOWS, body(name, version), False)

        thread = threading.Thread(target=give)
        thread.start()
        thread.join()
        async with asyncio.timeout(BOUND):
            while len(taken) < OBJECTS:
                await asyncio.sleep(0)
                turns.append(len(taken))
        assert taken == [(f"d{name}", str(VERSIONS - 1)) for name in range(OBJECTS)]
        assert all(after - before <= BATCH for before, after in zip([0, *turns], turns, strict=False))

    asyncio.run(scenario())


def test_must_events_that_arrive_while_others_are_taken_are_taken_too() -> None:
    """Nothing is left behind when the loop comes to the end just as more comes."""

    async def scenario() -> None:
        newest = dict[str, int]()

        def observed(resource: Resource, seen: Body, deleted: bool) -> None:
            newest[seen["metadata"]["name"]] = int(seen["metadata"]["resourceVersion"])

        handover = EventHandoff(observed)

        def give() -> None:
            for version in range(2000):
                handover.give(DATAFLOWS, body(version % 7, version), False)

        await asyncio.to_thread(give)
        async with asyncio.timeout(BOUND):
            while max(newest.values(), default=0) < 1999 or len(newest) < 7:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert sorted(newest.values()) == list(range(1993, 2000))

    asyncio.run(scenario())


def test_must_the_end_of_one_object_and_the_beginning_of_the_next_of_its_name_are_told_in_order() -> None:
    async def scenario() -> None:
        reported = list[tuple[str, bool]]()
        handover = EventHandoff(lambda resource, seen, deleted: reported.append((seen["metadata"]["uid"], deleted)))
        handover.give(DATAFLOWS, body(0, 1, "first"), False)
        handover.give(DATAFLOWS, body(0, 2, "first"), True)
        handover.give(DATAFLOWS, body(0, 3, "second"), False)
        async with asyncio.timeout(BOUND):
            while len(reported) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert reported == [("first", True), ("second", False)]

    asyncio.run(scenario())


def test_crash_of_the_handler_of_one_object_loses_no_other() -> None:
    """They are taken together, and given once."""

    async def scenario() -> None:
        taken = list[str]()

        def observed(resource: Resource, seen: Body, deleted: bool) -> None:
            if (name := seen["metadata"]["name"]) == "d1":
                raise ValueError(name)
            taken.append(name)

        handover = EventHandoff(observed)
        for name in range(4):
            handover.give(DATAFLOWS, body(name, 1), False)
        async with asyncio.timeout(BOUND):
            while not taken:  # noqa: ASYNC110 (nobody tells)
                await asyncio.sleep(0)
        assert taken == ["d0", "d2", "d3"]

    asyncio.run(scenario())

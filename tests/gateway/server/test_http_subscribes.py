"""Subscribes over HTTP: real HTTP; a replica is scripted."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.controller.harness import EMPTY, at
from tests.gateway.admission.test_stream_limits import Planner
from tests.gateway.server.served_http import MARK, SUBSCRIBE, Served, broken_off, play, until, updates
from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.errors import SubscribeEnded
from tidemark_operator.fleet.clients.subscription import Backlog
from tidemark_operator.planning.client import PlannerClient
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Planned, PlannedExport, PlanRequest
from tidemark_protocol.messages.responses import SubscribeBatch
from tidemark_protocol.plan.dataflow import SubscribeSink
from tidemark_protocol.types import STRING, Column


async def tell_changes(served: Served) -> None:
    """The rows at 499, one change at 600 in two batches, and the end at 700."""
    await served.tell(0, at(500), updates((1, 499, 1), (2, 499, 1)))
    await served.tell(500, at(600))
    await served.tell(600, at(600), updates((1, 600, -1)), upper_part=1)
    await served.tell(600, Frontier.empty(), updates((0, 600, 1), (3, 600, 1)), part=1)


def test_changes_are_json_lines() -> None:
    """The gateway leaves out updates that an earlier batch had."""

    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", {**SUBSCRIBE, "progress": "true"}) as answer:
            await tell_changes(served)
            return answer.headers["Tidemark-As-Of"], await answer.text()

    as_of, text = play(story)
    assert as_of == "499"
    assert [list(json.loads(line).values()) for line in text.splitlines()] == [
        [499, 1, 1],
        [499, 1, 2],
        [500],
        [600],
        [600, -1, 1],
        [600],
        [600, 1, 3],
        [None],
    ]


def test_an_event_has_all_changes_of_its_time_and_the_id_to_go_on_from() -> None:
    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", SUBSCRIBE, Accept="text/event-stream") as answer:
            assert answer.content_type == "text/event-stream"
            await tell_changes(served)
            return await answer.text()

    assert play(story).split("\n\n") == [
        f'id: 499.{MARK}\ndata: {{"__time": 499, "__diff": 1, "a": 1}}\ndata: {{"__time": 499, "__diff": 1, "a": 2}}',
        f'event: progress\nid: 499.{MARK}\ndata: {{"__progress": 500}}',
        f'event: progress\nid: 599.{MARK}\ndata: {{"__progress": 600}}',
        f'id: 600.{MARK}\ndata: {{"__time": 600, "__diff": -1, "a": 1}}\ndata: {{"__time": 600, "__diff": 1, "a": 3}}',
        "event: end\nid: end\ndata: {}",
        "",
    ]


def test_a_client_goes_on_after_the_last_event_that_it_has() -> None:
    """Without the rows; where it has everything, the answer tells it to come no more."""

    async def story(served: Served) -> Any:
        async with served.get(
            "/v1/subscribe", SUBSCRIBE, Last_Event_ID=f"450.{MARK}", Accept="text/event-stream"
        ) as answer:
            (export,) = served.created[0].description.sink_exports
            assert isinstance(export.sink, SubscribeSink)
            begun = answer.headers["Tidemark-As-Of"], export.sink.with_snapshot
        ended = [
            (await served.text("/v1/subscribe", {**SUBSCRIBE, "up_to": "700"}, Last_Event_ID=last))[0]
            for last in ("end", f"699.{MARK}")
        ]
        return begun, ended

    assert play(story) == (("450", False), [204, 204])


class Edited(Planner):
    """The same statement, after what it reads was edited, or deleted and made again."""

    def __init__(self, **change: Any) -> None:
        self._change = change

    async def plan(self, request: PlanRequest, *, patient: bool) -> Planned:
        return replace(await super().plan(request, patient=patient), **self._change)


@pytest.mark.parametrize(
    "change",
    [
        {"references": (GlobalId("s.b"),)},
        {"exports": (PlannedExport("result", "materializedView", GlobalId("o"), (Column("a", STRING),), (0,)),)},
    ],
    ids=["another relation", "another type"],
)
def test_changes_of_another_revision_never_follow_the_rows_of_the_first(change: dict[str, Any]) -> None:
    """A browser connects again by itself. The gateway answers 409, and ends the subscribe behind it."""

    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", SUBSCRIBE, Accept="text/event-stream") as answer:
            await served.tell(0, at(500), updates((1, 499, 1)))
            id = (await answer.content.readline()).decode().strip().removeprefix("id: ")
            async with served.get("/v1/subscribe", SUBSCRIBE, Accept="text/event-stream", Last_Event_ID=id) as again:
                unedited = again.status
            await until(lambda: served.running.clients.subscribes == 1)
            served.context.planner = cast(PlannerClient, Edited(**change))
            edited = await served.text("/v1/subscribe", SUBSCRIBE, Accept="text/event-stream", Last_Event_ID=id)
            await until(lambda: served.running.clients.subscribes == 1)
        return unedited, edited

    unedited, (status, text) = play(story)
    assert (unedited, status) == (200, 409)
    assert "begin without Last-Event-ID, with the rows" in json.loads(text)["error"]


@pytest.mark.parametrize(("accept", "upper"), [("text/event-stream", 499), ("application/x-ndjson", 499)])
def test_a_client_without_the_rows_has_no_time_to_go_on_from(accept: str, upper: int) -> None:
    """A view that is in error as of the first time: progress before it would be an id, after which no rows come."""

    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", {**SUBSCRIBE, "progress": "true"}, Accept=accept) as answer:
            await served.tell(0, at(upper))
            (await served.subscription()).fail(SubscribeEnded("division by zero"))
            return await broken_off(answer)

    text = play(story)
    assert "division by zero" in text
    assert "id:" not in text
    assert "progress" not in text


@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/event-stream"])
def test_a_subscribe_that_ends_early_says_why_and_has_no_end(accept: str) -> None:
    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", SUBSCRIBE, Accept=accept) as answer:
            await served.tell(0, at(500), updates((1, 499, 1)))
            (await served.subscription()).fail(SubscribeEnded("division by zero"))
            return (await broken_off(answer)).strip().splitlines()[-1]

    last = play(story)
    if accept == "text/event-stream":
        assert json.loads(last.removeprefix("data: ")) == {"error": "division by zero", "reason": "FAILED_PRECONDITION"}
    else:
        assert json.loads(last)["__error"]["error"] == "division by zero"


def test_an_event_that_is_not_complete_is_never_completed() -> None:
    """A client would take a half of a time for the whole; it drops what has no empty line after it."""

    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", SUBSCRIBE, Accept="text/event-stream") as answer:
            await served.tell(0, at(499), updates((1, 499, 1)), upper_part=1)
            (await served.subscription()).fail(SubscribeEnded("lost"))
            return await broken_off(answer)

    text = play(story)
    assert "\n\n" not in text
    assert text.splitlines()[-1].startswith(': failed {"error": "lost"')


@pytest.mark.parametrize("is_complete", [True, False], ids=["between events", "within one"])
def test_a_browser_does_not_go_on_once_another_program_changed_what_it_reads(is_complete: bool) -> None:
    """It connects again by itself with the last id, which is refused; an event that is not complete is no rows."""

    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", SUBSCRIBE, Accept="text/event-stream") as answer:
            await served.tell(0, at(500 if is_complete else 499), updates((1, 499, 1)), upper_part=not is_complete)
            (await served.subscription()).put(
                SubscribeAdvanced(
                    GlobalId("s"), SubscribeBatch(at(500), EMPTY, error="DELETE", is_void=True), (at(500), 0)
                )
            )
            text = await broken_off(answer)
        events = [dict(line.split(": ", 1) for line in each.splitlines()) for each in text.split("\n\n") if each]
        id = events[-1]["id"]
        again = await served.text("/v1/subscribe", SUBSCRIBE, Accept="text/event-stream", Last_Event_ID=id)
        return [event.get("event") for event in events], json.loads(events[-1]["data"]), again

    kinds, last, (status, text) = play(story)
    assert [kind for kind in kinds if kind != "progress"] == [None if is_complete else "incomplete", "failed"]
    assert last["error"] == "DELETE"
    assert status == 409
    assert "begin without Last-Event-ID, with the rows" in json.loads(text)["error"]


@pytest.mark.parametrize("reads", [True, False])
def test_a_client_that_goes_ends_its_subscribe_at_once(reads: bool) -> None:
    """Also one that never read what was sent."""

    async def story(served: Served) -> None:
        answer = await served.get("/v1/subscribe", SUBSCRIBE)
        await served.tell(0, at(500), updates((1, 499, 1)))
        if reads:
            await answer.content.readline()
        assert served.running.clients.subscribes == 1
        answer.close()
        await until(lambda: not served.running.clients.subscribes)
        assert served.limits.calls.free == 256

    play(story)


def test_a_client_that_reads_nothing_is_ended_and_told_from_when_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway bounds what waits for a slow reader as over gRPC; the connection takes some more."""
    monkeypatch.setattr("tidemark_operator.gateway.streams.subscribe.CHUNK_SECONDS", 0.01)
    many = updates(*((n, 499, 1) for n in range(1000)))

    async def story(served: Served) -> Any:
        answer = await served.get("/v1/subscribe", SUBSCRIBE)
        subscription = await served.subscription()
        subscription._backlog = Backlog(3 * len(many))
        upper = 500
        while subscription.failure is None:
            await served.tell(upper - 1, at(upper), many)
            upper += 1
            await asyncio.sleep(0)
        assert subscription.waiting_bytes == 0
        await until(lambda: not served.running.clients.subscribes)
        answer.close()
        return str(subscription.failure)

    assert "reads too slowly" in play(story)


def test_slow_readers_of_events_get_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle subscribe sends comments, so that proxies keep the connection."""
    monkeypatch.setattr("tidemark_operator.gateway.server.http_reads.BEAT_SECONDS", 0.01)

    async def story(served: Served) -> Any:
        async with served.get("/v1/subscribe", SUBSCRIBE, Accept="text/event-stream") as answer:
            return await answer.content.readline()

    assert play(story) == b":\n"

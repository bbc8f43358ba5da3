"""A statement kills the planner: other statements wait for the next planner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.waiting import BOUND
from tidemark_operator.errors import PlannerUnavailable
from tidemark_operator.planning import client
from tidemark_operator.planning.client import FORGET_SECONDS, Outage, PlannerClient
from tidemark_protocol.messages.planning import Catalogue, Diagnostic, PlanQueryRequest, PlanRequest, Refused
from tidemark_protocol.pb import planner_pb2, planner_pb2_grpc
from tidemark_protocol.plan import codec

QUERY = PlanQueryRequest("SELECT 1", Catalogue(()), "q/")
DATAFLOW = PlanRequest("d", (), (), Catalogue(()), "u/")
ANSWER = Refused((Diagnostic("TEST", "asked"),))
AWAY, BUSY = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
INVALID = grpc.StatusCode.INVALID_ARGUMENT


class Planner(planner_pb2_grpc.PlannerServicer):
    """Fails with these codes first, and answers then."""

    def __init__(self, *codes: grpc.StatusCode) -> None:
        self._codes, self.asked = list(codes), 0

    async def PlanQuery(self, request: Any, context: Any) -> Any:
        self.asked += 1
        if self._codes:
            await context.abort(self._codes.pop(0), "ask again")
        return planner_pb2.PlanQueryResponse(outcome=codec.encode(ANSWER))

    Plan = PlanQuery


async def serving(address: str, planner: Planner) -> grpc.aio.Server:
    server = grpc.aio.server()
    planner_pb2_grpc.add_PlannerServicer_to_server(planner, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(address)
    await server.start()
    return server


def with_client(folder: Path, scenario: Callable[[PlannerClient, str], Awaitable[None]]) -> None:
    async def bounded() -> None:
        address = f"unix://{folder}/s"
        asks = PlannerClient(address, lambda: None)
        try:
            await asyncio.wait_for(scenario(asks, address), BOUND)
        finally:
            await asks.close()

    asyncio.run(bounded())


def outcome_of(folder: Path, planner: Planner, question: Callable[[PlannerClient], Awaitable[object]]) -> object:
    """The outcome at a planner that is there."""
    answers = []

    async def scenario(asks: PlannerClient, address: str) -> None:
        server = await serving(address, planner)
        try:
            answers.append(await question(asks))
        finally:
            await server.stop(None)

    with_client(folder, scenario)
    return answers[0]


@pytest.mark.parametrize("codes", [(AWAY,), (AWAY, AWAY), (BUSY,)])
def test_a_query_is_asked_again_while_the_planner_is_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, codes: Sequence[grpc.StatusCode]
) -> None:
    """Or busy. Its user sees nothing of it."""
    monkeypatch.setattr(client, "PATIENCE_SECONDS", BOUND)
    planner = Planner(*codes)

    assert outcome_of(tmp_path, planner, lambda asks: asks.plan_query(QUERY)) == ANSWER
    assert planner.asked == len(codes) + 1


def test_a_query_waits_for_a_planner_that_is_just_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody listens when it is asked."""
    monkeypatch.setattr(client, "PATIENCE_SECONDS", BOUND)

    async def scenario(asks: PlannerClient, address: str) -> None:
        with pytest.raises(PlannerUnavailable):
            await asks.plan(DATAFLOW)
        waiting = asyncio.create_task(asks.plan_query(QUERY))
        server = await serving(address, Planner())
        assert await waiting == ANSWER
        assert await asks.plan(DATAFLOW) == ANSWER
        await server.stop(None)

    with_client(tmp_path, scenario)


@pytest.mark.parametrize(
    ("code", "patience", "question"),
    [
        (AWAY, 0, lambda asks: asks.plan_query(QUERY)),
        (AWAY, BOUND, lambda asks: asks.plan(DATAFLOW)),
        (INVALID, BOUND, lambda asks: asks.plan_query(QUERY)),
    ],
    ids=["away for long", "of a Dataflow", "not understood"],
)
def test_planner_errors_that_no_wait_mends_are_returned_at_once(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    code: grpc.StatusCode,
    patience: float,
    question: Callable[[PlannerClient], Awaitable[object]],
) -> None:
    """The reconciler of a Dataflow asks again for what it needs."""
    monkeypatch.setattr(client, "PATIENCE_SECONDS", patience)
    planner = Planner(code)
    with pytest.raises(PlannerUnavailable, match=f"the planner does not answer: {code.name}"):
        outcome_of(tmp_path, planner, question)

    assert planner.asked == 1


def test_a_planner_that_stays_busy_is_an_error_in_the_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Others are answered meanwhile, so it is not away."""
    monkeypatch.setattr(client, "PATIENCE_SECONDS", 0.01)
    planner = Planner(*[BUSY] * 3)
    with pytest.raises(PlannerUnavailable, match="waiting for a turn at the planner: ask again"):
        outcome_of(tmp_path, planner, lambda asks: asks.plan_query(QUERY))

    assert planner.asked < 4


def test_one_that_is_busy_has_not_been_away_all_the_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever finds it away afterwards waits as long as if it were away since then. A Dataflow is told what it waits
    for, and not of an end of the planner's long ago."""
    monkeypatch.setattr(client, "PATIENCE_SECONDS", BOUND)
    found = list[float]()

    async def questions(asks: PlannerClient) -> object:
        for match in ("does not answer", "waiting for a turn at the planner: ask again", "does not answer"):
            with pytest.raises(PlannerUnavailable, match=match):
                await asks.plan(DATAFLOW)
            found.append(asks._outage._since)
        return await asks.plan_query(QUERY)

    assert outcome_of(tmp_path, Planner(AWAY, BUSY, AWAY), questions) == ANSWER
    assert found[0] == found[1] < found[2]


def test_must_an_absence_that_is_over_shortens_no_later_one() -> None:
    """Nobody may have asked when it answered again; who is asked without a pause finds one absence."""
    away = Outage()
    moments = (0.0, 1.0, 1.0 + FORGET_SECONDS, 100.0, 101.0)
    assert [away.record(at, at) for at in moments] == [0.0, 1.0, 1.0 + FORGET_SECONDS, 0.0, 1.0]
    away.end()
    assert away.record(102.0, 102.0) == 0.0


def test_a_question_that_takes_long_to_fail_is_of_the_same_absence() -> None:
    """The moment of the question counts: nobody has found the planner there since."""
    away = Outage()
    assert [away.record(at, at + 7.0) for at in (0.0, 7.5, 15.0)] == [0.0, 7.5, 15.0]

"""Limits of subscribes and copies: one that waits for a replica is none of those that run, and waits are bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.controller.harness import R1, at
from tests.gateway.admission.test_fair_queue import settled
from tests.gateway.auth.test_rights import LISTS, Caller
from tests.gateway.registries import registry, shard_of
from tests.gateway.server.test_metrics import Deaf
from tests.waiting import BOUND
from tidemark_operator.errors import QueryRefused, TooMany
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.fleet.replica_state import ReplicaState
from tidemark_operator.fleet.running_instance import InstanceListener, RunningInstance
from tidemark_operator.gateway.admission import wait_policy
from tidemark_operator.gateway.admission.limits import COPIES, SUBSCRIBES, WAITS, GatewayLimits
from tidemark_operator.gateway.query.read_time import ReadableTimes, TimeRequest, choose_time
from tidemark_operator.gateway.streams.copy import Copies
from tidemark_operator.gateway.streams.subscribe import GrpcSubscriber, Subscribes
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.leadership import Leadership
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.messages.commands import InstanceConfig
from tidemark_protocol.messages.planning import Planned, PlannedExport, PlanRequest
from tidemark_protocol.pb.gateway_pb2 import CopyRequest, SubscribeRequest
from tidemark_protocol.plan.dataflow import SourceImport
from tidemark_protocol.types import BIGINT, Column

Serve = Callable[[str], Awaitable[Any]]


class Planner:
    """Plans whatever it is asked as something that reads nothing, or table `s.a`."""

    async def plan(self, request: PlanRequest, *, patient: bool) -> Planned:
        export = PlannedExport("result", "materializedView", GlobalId("o"), (Column("a", BIGINT),), (0,))
        reads = (SourceImport(GlobalId("s.a"), shard_of("s.a"), (0,)),) if "FROM" in request.views[0].sql else ()
        return Planned(reads, (), (export,), tuple(source.id for source in reads), "")


class Client:
    async def write(self, message: Any) -> None:
        pass


def instances() -> Fleet:
    """One whose replica is away, and one whose replica answers."""
    fleet = Fleet(cast(Leadership, SimpleNamespace(term=WriterTerm(7))))
    fleet.listener = cast(InstanceListener, Deaf())
    for name in ("away", "there"):
        state = ReplicaState(cast(Any, None), cast(Any, None), asyncio.Event(), silent_since_ms=1)
        state.online = name == "there"
        fleet.ensure("ns", InstanceConfig(name, "/data")).replicas[R1] = state
    return fleet


def online_instance(fleet: Fleet) -> RunningInstance:
    running = fleet.get("ns", "there")
    assert running is not None
    return running


def serving(what: str, fleet: Fleet, subject: str = "SELECT 1") -> Serve:
    """A call of anne's, on an instance."""
    namespace = {"registry": registry(), "fleet": fleet, "running": fleet.get, "planner": Planner()}
    context, limits = cast(ReconcileContext, SimpleNamespace(**namespace)), GatewayLimits()
    caller = Caller(*LISTS, "create dataflows/copies in namespace ns", "get datasources/data s in namespace ns")
    if what == "copies":
        all_copies = Copies(context, limits)
        return lambda place: all_copies.serve(
            caller, CopyRequest(namespace="ns", subject=subject, instance=place, to="x", format="csv")
        )

    async def admit() -> Caller:
        return caller

    all_subscribes = Subscribes(context, limits)
    return lambda place: all_subscribes.serve(
        caller,
        admit,
        SubscribeRequest(namespace="ns", subject=subject, instance=place),
        GrpcSubscriber(Client(), SubscribeRequest(subject=subject)),
    )


@pytest.mark.parametrize(("what", "most"), [("copies", COPIES), ("subscribes", SUBSCRIBES)])
def test_waiting_for_a_lost_replica_leaves_units_for_other_instances(
    what: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The units that are left are those that would be left if nothing waited; one more is refused, also of those that
    wait once their replica is there."""
    monkeypatch.setattr(wait_policy, "REPLICA_SECONDS", BOUND)
    monkeypatch.setattr(wait_policy, "LOOK_AGAIN_SECONDS", 0.001)
    looked = asyncio.Semaphore(0)
    require_online = wait_policy.require_online

    def look(running: RunningInstance, why: str) -> None:
        looked.release()
        require_online(running, why)

    monkeypatch.setattr("tidemark_operator.gateway.query.query.require_online", look)

    async def play() -> None:
        fleet = instances()
        serve, running = serving(what, fleet), online_instance(fleet)
        waiting = []
        for _ in range(most):  # one after the other: fewer may wait for the planner
            waiting.append(asyncio.ensure_future(serve("away")))
            await looked.acquire()
        begun = []
        for number in range(most // 2):
            begun.append(asyncio.ensure_future(serve("there")))
            async with asyncio.timeout(BOUND):
                while running.clients.copies + running.clients.subscribes <= number:
                    assert not begun[-1].done(), begun[-1].exception()
                    await asyncio.sleep(0.001)
        with pytest.raises(TooMany, match=f"{most // 2} {what} of anne run already"):
            await serve("there")

        away = fleet.get("ns", "away")
        assert away is not None
        away.replicas[R1].online = True
        for call in waiting:
            with pytest.raises(TooMany, match=f"{most // 2} {what} of anne run already"):
                await call
        for call in begun:
            call.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        assert (running.clients.copies, running.clients.subscribes) == (0, 0)

    asyncio.run(play())


@pytest.mark.parametrize("what", ["copies", "subscribes"])
def test_statements_that_wait_for_a_replica_are_bounded(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that waits holds a call, and calls are for everybody; another instance is used meanwhile."""
    monkeypatch.setattr(wait_policy, "REPLICA_SECONDS", BOUND)

    async def play() -> None:
        fleet = instances()
        serve, running = serving(what, fleet), online_instance(fleet)
        waiting = list[asyncio.Future[Any]]()
        for _ in range(WAITS // 2):  # one after the other: fewer may wait for the planner
            waiting.append(asyncio.ensure_future(serve("away")))
            await settled()
        with pytest.raises(TooMany, match=f"{WAITS // 2} statements that wait for a replica of anne run already"):
            await serve("away")
        waiting.append(asyncio.ensure_future(serve("there")))
        async with asyncio.timeout(BOUND):
            while not running.clients.copies + running.clients.subscribes:
                assert not waiting[-1].done(), waiting[-1].exception()
                await asyncio.sleep(0.001)
        for call in waiting:
            call.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended)

    asyncio.run(play())


@pytest.mark.parametrize("made_anew", [False, True], ids=["deleted", "made anew"])
@pytest.mark.parametrize("what", ["copies", "subscribes"])
def test_crash_a_waiting_statement_learns_that_its_instance_is_gone(
    what: str, made_anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On what is gone it would never come to an end, and keep its place."""
    monkeypatch.setattr(wait_policy, "COMMON_TIME_SECONDS", BOUND)
    monkeypatch.setattr(wait_policy, "LOOK_AGAIN_SECONDS", 0.001)
    looked = asyncio.Event()

    def look(spans: Sequence[ReadableTimes], when: TimeRequest) -> Time:
        looked.set()
        return choose_time(spans, when)

    monkeypatch.setattr("tidemark_operator.gateway.streams.stream_dataflow.choose_time", look)

    async def play() -> None:
        fleet, table = instances(), shard_of("s.a")
        book = fleet.book("ns")
        book.register(table.shard_id, table.location)
        book.observe(table.shard_id, at(0), at(0))
        calling = asyncio.ensure_future(serving(what, fleet, "SELECT * FROM s.a")("there"))
        await looked.wait()
        assert not calling.done()
        online_instance(fleet).replicas.clear()
        fleet.remove("ns", "there")
        if made_anew:
            fleet.ensure("ns", InstanceConfig("there", "/other"))
        book.observe(table.shard_id, at(500), at(0))
        async with asyncio.timeout(BOUND):
            with pytest.raises(QueryRefused, match="ComputeInstance there was deleted, or its storage is another"):
                await calling

    asyncio.run(play())

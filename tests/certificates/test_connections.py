"""The operator's connections by certificate: to replicas, kept and renewed, and to the planner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.certificates.peers import replica, run
from tests.certificates.samples import R1, R2, material, written
from tests.controller.scripted import Listening, leadership
from tests.waiting import BOUND
from tidemark_operator.certificates.channel_factory import TlsChannels
from tidemark_operator.certificates.issue import new_authority
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.errors import PlannerUnavailable
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.planning.client import PlannerClient
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.commands import InstanceConfig
from tidemark_protocol.messages.planning import Catalogue, Diagnostic, PlanRequest, Refused
from tidemark_protocol.pb import planner_pb2, planner_pb2_grpc
from tidemark_protocol.plan import codec
from tidemark_protocol.tls.folder import CertificateFolder, Material
from tidemark_protocol.tls.identities import OPERATOR, PLANNER, Identity
from tidemark_protocol.tls.server import RequireCaller, server_credentials

NOW_MS = int(time.time() * 1000)
OURS, NEXT = new_authority(NOW_MS), new_authority(NOW_MS)
BOTH = OURS.certificate + NEXT.certificate
REQUEST = PlanRequest("x", (), (), Catalogue(()), "x/")


class Own:
    """The operator's certificate, which can be replaced."""

    def __init__(self, found: Material) -> None:
        self.found = found

    def __call__(self) -> Material:
        return self.found


async def until(holds: Callable[[], Any]) -> None:
    """The connection tells nobody but the instance, so it is asked again and again."""
    async with asyncio.timeout(BOUND):
        while True:
            if holds():
                return
            await asyncio.sleep(0.02)


def instance() -> RunningInstance:
    leadership.term = 4
    return RunningInstance("team-a", InstanceConfig("default", "/data"), ShardBook(), leadership, Listening())


def test_a_replica_is_online_by_its_certificate(tmp_path: Path) -> None:
    """Over a network address; attaching it again in the same way changes nothing."""

    async def scenario() -> None:
        running, own = instance(), Own(material(OURS, OPERATOR, NOW_MS))
        running.attach(ReplicaId("r1"), address, TlsChannels(R1, own))
        await until(lambda: running.online)
        connection = running.replicas[ReplicaId("r1")].connection
        running.attach(ReplicaId("r1"), address, TlsChannels(R1, own))
        assert running.replicas[ReplicaId("r1")].connection is connection
        await running.close()

    address = f"unix://{tmp_path}/s"
    with replica(address, written(tmp_path / "tls", material(OURS, R1, NOW_MS))):
        run(scenario())


def test_another_replica_at_the_address_is_named_and_never_told_anything(tmp_path: Path) -> None:
    """The ComputeReplica says who answered; when its own process is there, it is online."""

    async def scenario() -> None:
        running, name = instance(), ReplicaId("r1")
        running.attach(name, address, TlsChannels(R1, Own(material(OURS, OPERATOR, NOW_MS))))
        error = "replica team-a/r1 (1111) presented a certificate for replica team-a/r2 (2222)"
        await until(lambda: running.replicas[name].last_error == error)
        assert not running.online
        written(tmp_path / "tls", material(OURS, R1, NOW_MS))
        await until(lambda: running.online)
        assert running.replicas[name].last_error == ""
        await running.close()

    address = f"unix://{tmp_path}/s"
    with replica(address, written(tmp_path / "tls", material(OURS, R2, NOW_MS))):
        run(scenario())


class Planner(planner_pb2_grpc.PlannerServicer):
    """Refuses everything with one word, when it is let to."""

    def __init__(self, word: str) -> None:
        self._outcome = codec.encode(Refused((Diagnostic("TEST", word),)))

    def Plan(self, request: Any, context: Any) -> Any:
        return planner_pb2.PlanResponse(outcome=self._outcome)


def planner(address: str, folder: CertificateFolder) -> Any:
    server = grpc.server(ThreadPoolExecutor(2), interceptors=[RequireCaller(OPERATOR)])
    planner_pb2_grpc.add_PlannerServicer_to_server(Planner("asked"), server)  # type: ignore[no-untyped-call]
    server.add_secure_port(address, server_credentials(folder))
    server.start()
    return server


def test_the_planner_is_asked_with_the_certificate_of_now(tmp_path: Path) -> None:
    """The authority hands over between two plans: the same client goes on."""
    address, folder = f"unix://{tmp_path}/s", tmp_path / "tls"
    server = planner(address, written(folder, material(OURS, PLANNER, NOW_MS)))
    steps = [
        (material(OURS, OPERATOR, NOW_MS), material(OURS, PLANNER, NOW_MS)),
        (material(OURS, OPERATOR, NOW_MS, BOTH), material(OURS, PLANNER, NOW_MS, BOTH)),
        (material(NEXT, OPERATOR, NOW_MS, BOTH), material(NEXT, PLANNER, NOW_MS, BOTH)),
        (material(NEXT, OPERATOR, NOW_MS), material(NEXT, PLANNER, NOW_MS)),
    ]

    async def scenario() -> None:
        own = Own(steps[0][0])
        client = PlannerClient(address, lambda: None, dialer=TlsChannels(PLANNER, own))
        try:
            for own.found, its in steps:
                written(folder, its)
                assert await client.plan(REQUEST) == Refused((Diagnostic("TEST", "asked"),))
        finally:
            await client.close()

    try:
        run(scenario())
    finally:
        server.stop(0).wait()


@pytest.mark.parametrize(("shown", "wrong"), [(R1, "presented a certificate for replica"), (OPERATOR, "not trusted")])
def test_an_impostor_of_the_planner_gets_no_request(shown: Identity, wrong: str, tmp_path: Path) -> None:
    """And the error says what it was."""
    address = f"unix://{tmp_path}/s"
    server = planner(address, written(tmp_path / "tls", material(OURS, shown, NOW_MS)))

    async def scenario() -> None:
        dialer = TlsChannels(PLANNER, Own(material(OURS, OPERATOR, NOW_MS)))
        client = PlannerClient(address, lambda: None, lambda: "its process ended", dialer)
        with pytest.raises(PlannerUnavailable, match=f"the planner does not answer: the planner .*{wrong}"):
            await client.plan(REQUEST)
        await client.close()

    try:
        run(scenario())
    finally:
        server.stop(0).wait()

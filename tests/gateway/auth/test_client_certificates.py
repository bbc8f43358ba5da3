"""Client certificates of the cluster open the gateway: real TLS, a real API server, the command line with kubectl.

kubeconfig of a user ──► kubectl tidemark --client-certificate ──► gateway ──► SubjectAccessReview
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from tests.authorities import DAY, Authority, Pair
from tests.waiting import BOUND, until
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.errors import KubectlFailed
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.errors import OperatorError
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.gateway.server.listener import ClientAuthority, ListenerConfig, TlsFolder
from tidemark_operator.gateway.server.server import Gateway
from tidemark_operator.handlers.reconcile.data_source import DataSourceReconciler
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.retained_tables import RetainedTables
from tidemark_operator.kube.cache import Cache
from tidemark_operator.kube.client import Kube
from tidemark_operator.kube.events import Events
from tidemark_operator.kube.leadership import Leadership
from tidemark_operator.kube.revisions import Revisions
from tidemark_operator.orchestrator.local.orchestrator import ProcessOrchestrator
from tidemark_operator.planning.client import PlannerClient
from tidemark_protocol.pb.gateway_pb2 import FrontiersRequest
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayStub

pytestmark = pytest.mark.cluster
CLUSTER = Authority.named("cluster")
PUBLISHED = ("-n", "kube-system", "configmap", "extension-apiserver-authentication")


@dataclass
class Place:
    """A gateway that can be started, and a namespace where the group `readers` may see how objects are."""

    plane: ControlPlane
    namespace: str
    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "clients.crt"

    @asynccontextmanager
    async def gateway(self, clients: ClientAuthority) -> AsyncIterator[dict[str, str]]:
        """One that runs; what it says of itself."""
        async with Kube.connect(self.plane.kubeconfig) as kube:
            listening = ListenerConfig(tls=TlsFolder(self.folder), clients=clients)
            sources = cast(DataSourceReconciler, None)  # nobody asks for a change of files
            tables = cast(RetainedTables, None)  # nobody asks for tables
            gateway = Gateway(self._context(kube), sources, tables, self.folder, listening, self.file)
            try:
                await gateway.start()
                found: dict[str, str] = json.loads(self.file.read_text())
                yield found
            finally:
                await gateway.close()

    @property
    def file(self) -> Path:
        return self.folder / "gateway.json"

    def may_list(self, *who: str) -> bool:
        """By the API server's own word: it comes to know of a new binding a little later, and the gateway believes a
        refusal for a while."""
        try:
            asked = ("auth", "can-i", "list", "dataflows.compute.tidemark.dev", *who)
            return self.plane.kubectl("-n", self.namespace, *asked).strip() == "yes"
        except KubectlFailed:
            return False

    def own_token(self) -> str:
        found: dict[str, str] = json.loads(self.file.read_text())
        return Path(found["tokenFile"]).read_text().strip()

    def _context(self, kube: Kube) -> ReconcileContext:
        orchestrator = ProcessOrchestrator(self.folder, planner=False)
        leadership = Leadership(kube, self.namespace, "test")
        return ReconcileContext(
            kube=kube,
            cache=Cache(),
            registry=Registry(),
            fleet=Fleet(leadership),
            orchestrator=orchestrator,
            planner=PlannerClient(orchestrator.planner_address, orchestrator.kill_planner),
            revisions=Revisions(kube),
            events=Events(kube, "test"),
            leadership=leadership,
        )

    async def asks(self, found: dict[str, str], shown: Pair | None, *, token: str | None = None) -> str:
        """The end of a call at the address for certificates."""
        pair = (shown.key, shown.certificate) if shown else (None, None)
        credentials = grpc.ssl_channel_credentials(CLUSTER.pair.certificate, *pair)
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        async with grpc.aio.secure_channel(found["certificateAddress"], credentials) as channel:
            try:
                stub = GatewayStub(channel)  # type: ignore[no-untyped-call]
                await stub.Frontiers(FrontiersRequest(namespace=self.namespace), timeout=BOUND, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name}: {error.details()}"
        return "answered"

    def asks_with_kubectl(self, shown: Pair | None) -> subprocess.CompletedProcess[str]:
        """The command line, as a user of the cluster with a kubeconfig of their own."""
        parts = {"client-certificate-data": shown.certificate, "client-key-data": shown.key} if shown else {}
        user: dict[str, Any] = {name: base64.b64encode(part).decode() for name, part in parts.items()}
        config = json.loads(self.plane.kubeconfig.read_text())
        config["users"] = [{"name": "me", "user": user or {"token": "t"}}]
        config["contexts"][0]["context"]["user"] = "me"
        mine = self.folder / "kubeconfig"
        mine.write_text(json.dumps(config))
        path = f"{self.plane.layout.kubectl.parent}{os.pathsep}{os.environ['PATH']}"
        command = ["-m", "tidemark_cli", "frontiers", "-n", self.namespace, "--client-certificate"]
        return subprocess.run(
            [sys.executable, *command, "--gateway-file", str(self.file)],
            env={**os.environ, "KUBECONFIG": str(mine), "PATH": path},
            capture_output=True,
            text=True,
            timeout=BOUND,
            check=False,
        )


@pytest.fixture
def place(kinds_installed: ControlPlane, namespace: str, tmp_path: Path) -> Place:
    server = CLUSTER.server("127.0.0.1")
    for name, content in (
        ("tls.crt", server.certificate),
        ("tls.key", server.key),
        ("ca.crt", CLUSTER.pair.certificate),
        ("clients.crt", CLUSTER.pair.certificate),
    ):
        (tmp_path / name).write_bytes(content)
    rules = "--resource=dataflows.compute.tidemark.dev,datasources.compute.tidemark.dev"
    kinds_installed.kubectl("-n", namespace, "create", "role", "see", "--verb=list", rules)
    binding = ("create", "rolebinding", "see", "--role=see", "--group=readers", "--user=berta")
    kinds_installed.kubectl("-n", namespace, *binding)
    place = Place(kinds_installed, namespace, tmp_path)
    for who in (("--as=berta",), ("--as=anne", "--as-group=readers")):
        until(lambda who=who: place.may_list(*who))
    return place


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await scenario()

    asyncio.run(bounded())


def test_users_and_groups_of_certificates_have_the_rights_that_the_cluster_gives_them(place: Place) -> None:
    """By name, by group, or none: the API server is asked, as for users with a token, which opens the port too."""

    async def scenario() -> None:
        async with place.gateway(ClientAuthority(place.authority)) as found:
            for name, groups, ends in (
                ("berta", (), "answered"),
                ("anne", ("other", "readers"), "answered"),
                ("carl", ("other",), "PERMISSION_DENIED: carl may not list"),
                ("carl", ("Readers",), "PERMISSION_DENIED: carl may not list"),
            ):
                answer = await place.asks(found, CLUSTER.client(name, *groups))
                assert answer.startswith(ends), (name, answer)
            assert await place.asks(found, CLUSTER.client("carl"), token=place.own_token()) == "answered"
            answer = await place.asks(found, CLUSTER.client("berta"), token="stolen")
            assert answer.startswith("UNAUTHENTICATED"), "who shows a token is asked for by it"

    run(scenario)


def test_a_foreign_client_certificate_opens_nothing(place: Place) -> None:
    """None, another authority's of the same name, a server's, expired, not valid yet: TLS refuses. Nobody's: we do."""

    async def scenario() -> None:
        async with place.gateway(ClientAuthority(place.authority)) as found:
            for shown in (
                None,
                Authority.named("cluster").client("berta", "readers"),
                CLUSTER.server("127.0.0.1"),
                CLUSTER.client("berta", valid=(-2 * DAY, -DAY)),
                CLUSTER.client("berta", valid=(DAY, 2 * DAY)),
            ):
                assert (await place.asks(found, shown)).startswith("UNAVAILABLE"), shown
            for names in ((), ("berta", "carl")):
                answer = await place.asks(found, CLUSTER.client(names, "readers"))
                assert answer.startswith("UNAUTHENTICATED: the client certificate names no user"), answer
            assert await place.asks(found, CLUSTER.client("berta")) == "answered"

    run(scenario)


def test_an_authority_that_is_renewed_holds_from_the_next_connection_on(place: Place) -> None:
    """The operator finds the new authority by itself. A file that it cannot read meanwhile changes nothing."""

    async def scenario() -> None:
        async with place.gateway(ClientAuthority(place.authority)) as found:
            next_one = Authority.named("next")
            old, new = CLUSTER.client("berta"), next_one.client("berta")
            place.authority.write_text("not written yet")
            assert await place.asks(found, old) == "answered"
            place.authority.write_bytes(next_one.pair.certificate)
            assert await place.asks(found, new) == "answered"
            assert (await place.asks(found, old)).startswith("UNAVAILABLE")

    run(scenario)


def test_the_command_line_shows_the_answers_of_kubectl(place: Place) -> None:
    """The certificate of the current context; and says what is wrong where there is none, or it is not taken."""

    async def scenario() -> None:
        async with place.gateway(ClientAuthority(place.authority)):
            done = await asyncio.to_thread(place.asks_with_kubectl, CLUSTER.client("anne", "readers"))
            assert (done.returncode, done.stderr) == (0, "")
            for shown, message in (
                (CLUSTER.client("carl"), "carl may not list"),
                (Authority.named("other").client("berta"), "does not take the client certificate"),
                (CLUSTER.client(()), "names no user"),
                (None, "has no client certificate"),
            ):
                done = await asyncio.to_thread(place.asks_with_kubectl, shown)
                assert (done.returncode, message in done.stderr) == (1, True), done.stderr

    run(scenario)


@pytest.fixture
def published(place: Place) -> Iterator[Callable[[str | None], None]]:
    """Publishes an authority as an API server does that takes client certificates; ours takes none."""
    before = place.plane.kubectl("get", *PUBLISHED, "--ignore-not-found", "-o", "name")
    if not before:
        place.plane.kubectl("create", *PUBLISHED)

    def publish(authority: str | None) -> None:
        patch = json.dumps({"data": {"client-ca-file": authority}})
        place.plane.kubectl("patch", *PUBLISHED, "--type=merge", "-p", patch)

    yield publish
    if before:
        publish(None)
    else:
        place.plane.kubectl("delete", *PUBLISHED)


def test_the_clusters_own_authority_is_the_one_that_the_api_server_publishes(
    place: Place, published: Callable[[str | None], None]
) -> None:
    """Where it publishes none, or nothing that is one, the operator says so and does not start."""

    async def scenario() -> None:
        for text, message in (
            (None, "accepts no client certificates"),
            ("nonsense", "not the certificate of an authority"),
        ):
            published(text)
            with pytest.raises(OperatorError, match=message):
                async with place.gateway(ClientAuthority(None)):
                    pass
        published(CLUSTER.pair.certificate.decode())
        async with place.gateway(ClientAuthority.named("cluster", 0)) as found:
            assert await place.asks(found, CLUSTER.client("berta")) == "answered"
            assert (await place.asks(found, Authority.named("cluster").client("berta"))).startswith("UNAVAILABLE")

    run(scenario)

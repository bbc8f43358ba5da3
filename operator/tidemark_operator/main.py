"""`python -m tidemark_operator`: start-up and clean-up.

    stand by ─► term ─► list and load ─► processes, connections, queue, statuses, gateway ─► watches
    stop ─► queue and connections end ─► watches end ─► the Lease is let go of; the replicas go on without us

Exit status: 0 when asked to end, 1 when it cannot go on (said in one line), 3 when another operator leads.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.core import Metric

from tidemark_operator import metrics
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.certificates.files import FileStore
from tidemark_operator.certificates.peers import Peers, Trusted
from tidemark_operator.certificates.proven import Proven
from tidemark_operator.certificates.secrets import SecretStore
from tidemark_operator.errors import LeadershipLost, OperatorError
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.gateway.listening import LOOPBACK, Clients, Listening, Tls
from tidemark_operator.gateway.server import Gateway
from tidemark_operator.handlers.default_instance import DefaultInstance
from tidemark_operator.handlers.operator import Operator
from tidemark_operator.handlers.processes import Processes
from tidemark_operator.handlers.store_secrets import StoreSecrets
from tidemark_operator.handlers.watches import watch
from tidemark_operator.handlers.world import World
from tidemark_operator.kube.cache import Cache
from tidemark_operator.kube.client import Kube
from tidemark_operator.kube.events import Events
from tidemark_operator.kube.leadership import Leadership
from tidemark_operator.kube.revisions import Revisions
from tidemark_operator.kube.starting import asked_again
from tidemark_operator.orchestrator.interface import Orchestrator
from tidemark_operator.orchestrator.kubernetes.orchestrator import KubernetesOrchestrator
from tidemark_operator.orchestrator.kubernetes.settings import Settings
from tidemark_operator.orchestrator.process import ProcessOrchestrator
from tidemark_operator.planning.client import PlannerClient
from tidemark_protocol.tls.identities import PLANNER

LOG = logging.getLogger("tidemark_operator")
CERTIFICATES = "certificates"
"""In the state folder."""
EXIT_FAILED = 1
EXIT_NOT_LEADER = 3


@dataclass(frozen=True)
class Options:
    kubeconfig: Path | None
    state: Path
    namespaces: tuple[str, ...]
    lease_namespace: str
    gateway: Listening
    gateway_file: Path
    planner: str | None
    metrics_port: int | None
    mutual_tls: bool
    metrics_host: str
    default_instance: DefaultInstance | None
    pods: Settings | None
    """Of replicas that are pods; None: they are processes of this machine."""


def parse(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="tidemark_operator", description="Runs Tidemark's dataflows.")
    parser.add_argument("--kubeconfig", type=Path, help="of the cluster; absent: the pod's service account")
    parser.add_argument(
        "--orchestrator",
        choices=["process", "kubernetes"],
        default="process",
        help="what runs the replicas: processes of this machine, or pods (default: %(default)s)",
    )
    parser.add_argument("--state-dir", type=Path, required=True, help="processes' records, logs, scratch; the token")
    parser.add_argument("--namespace", action="append", default=[], help="look after this one (repeatable; all)")
    parser.add_argument("--lease-namespace", default="default", help="where the Lease is (default: %(default)s)")
    parser.add_argument("--gateway-host", default=LOOPBACK, help="where the gateway listens (%(default)s)")
    parser.add_argument("--gateway-port", type=int, default=0, help="and its port (default: any free one)")
    parser.add_argument("--gateway-tls", type=Path, help="tls.crt, tls.key, ca.crt: needed beyond loopback")
    parser.add_argument(
        "--gateway-client-ca", metavar="cluster|FILE", help="client certificates of it open the gateway"
    )
    parser.add_argument("--gateway-client-port", type=int, default=0, help="where they do (default: any free one)")
    parser.add_argument("--gateway-file", type=Path, help="where clients find the gateway (STATE_DIR/gateway.json)")
    parser.add_argument("--planner", help="host:port of a planner that runs elsewhere (default: a process of ours)")
    parser.add_argument("--metrics-port", type=int, help="for Prometheus, without authentication (default: none)")
    parser.add_argument("--metrics-host", default=LOOPBACK, help="where that is (%(default)s)")
    parser.add_argument("--default-instance", help="NAMESPACE/NAME of a ComputeInstance to make where there is none")
    parser.add_argument("--default-location", help="where that one's shards are to be")
    parser.add_argument(
        "--mutual-tls",
        action="store_true",
        help="replicas and the planner show certificates of this operator's, and ask it for one, as they do in a "
        "cluster (default: on this machine, unix sockets that this user alone can enter are enough)",
    )
    _pod_arguments(parser.add_argument_group("replicas as pods"))
    given = parser.parse_args(arguments)
    if given.orchestrator == "kubernetes" and not (given.replica_image and given.planner):
        parser.error("--orchestrator kubernetes needs --replica-image, and the --planner of a pod of its own")
    return Options(
        given.kubeconfig.absolute() if given.kubeconfig else None,
        given.state_dir.absolute(),
        tuple(given.namespace),
        given.lease_namespace,
        _listening(given),
        (given.gateway_file or given.state_dir / "gateway.json").absolute(),
        given.planner,
        given.metrics_port,
        given.mutual_tls,
        given.metrics_host,
        DefaultInstance.parse(given.default_instance, given.default_location),
        _pods(given) if given.orchestrator == "kubernetes" else None,
    )


def _listening(given: argparse.Namespace) -> Listening:
    tls = Tls(given.gateway_tls.absolute()) if given.gateway_tls else None
    authority = given.gateway_client_ca
    clients = Clients.named(authority, given.gateway_client_port) if authority else None
    if clients is None and given.gateway_client_port:
        raise OperatorError("--gateway-client-port says where --gateway-client-ca holds: give both")
    return Listening(given.gateway_host, given.gateway_port, tls, clients)


def _pod_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--replica-image", help="of replicas and their executors")
    group.add_argument("--replica-image-pull-policy", choices=["Always", "IfNotPresent", "Never"])
    group.add_argument(
        "--replica-image-pull-secret", action="append", default=[], help="by which it is had (repeatable)"
    )
    group.add_argument("--driver-service-account", help="of replicas with executors (tidemark-driver)")
    group.add_argument("--executor-service-account", help="of executors (tidemark-executor)")


def _pods(given: argparse.Namespace) -> Settings:
    asked = {
        "pull_policy": given.replica_image_pull_policy,
        "pull_secrets": tuple(given.replica_image_pull_secret),
        "driver_account": given.driver_service_account,
        "executor_account": given.executor_service_account,
    }
    return Settings(given.replica_image, **{name: value for name, value in asked.items() if value})


def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for chatty in ("kopf", "kubernetes.aio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    os.umask(0o077)
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        return asyncio.run(run(options))
    except OperatorError as error:
        print(f"tidemark_operator: {error}", file=sys.stderr)
        return EXIT_FAILED


async def run(options: Options) -> int:
    """Until a signal, or until another operator leads."""
    stop = asyncio.Event()
    _take_signals(stop)
    async with Kube.connect(options.kubeconfig, options.namespaces) as kube:
        identity = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        leadership = Leadership(kube, options.lease_namespace, identity)
        fleet = Fleet(leadership)
        if options.metrics_port is not None:

            def told() -> list[Metric]:
                return [*metrics.leading(leadership), *metrics.metrics(fleet)]

            metrics.serve(told, options.metrics_port, options.metrics_host)
        tasks = Background(stop)
        try:
            if not await _leads(leadership, stop):
                return 0
            options.state.mkdir(parents=True, exist_ok=True, mode=0o700)
            kube.fence = leadership.check
            tasks.start("leadership", leadership.keep())
            return await _lead(await _world(kube, options, leadership, fleet, identity), options, tasks, stop)
        finally:
            await tasks.end()
            await leadership.release()


async def _leads(leadership: Leadership, stop: asyncio.Event) -> bool:
    """Once this process leads; False where it is told to end before."""
    standing, stopped = asyncio.create_task(leadership.stand_by()), asyncio.create_task(stop.wait())
    await asyncio.wait((standing, stopped), return_when=asyncio.FIRST_COMPLETED)
    for task in (standing, stopped):
        task.cancel()
    await asyncio.gather(standing, stopped, return_exceptions=True)
    return not stop.is_set() and standing.result() > 0


async def _lead(world: World, options: Options, tasks: Background, stop: asyncio.Event) -> int:
    """From the term to the end of all that was begun under it."""
    watched = asyncio.Event()
    operator = Operator(world, stop)
    world.fleet.listener = operator
    gateway = Gateway(world, options.state, options.gateway, options.gateway_file)
    watching = None
    try:
        await operator.start()
        if options.default_instance is not None:
            await options.default_instance.ensure(world.kube)
        await gateway.start()
        for name, work in _work(operator, world):
            tasks.start(name, work)
        watching = asyncio.create_task(watch(operator.observed, options.kubeconfig, options.namespaces, watched))
        watching.add_done_callback(lambda _: stop.set())
        await _stopped(stop)
        # kopf has said why: it gives up on answers that no API server should give
        tasks.failed = tasks.failed or watching.done()
    finally:
        # kopf cancels what still runs when it ends, so it ends last
        await tasks.end()
        await operator.close()
        await asyncio.gather(gateway.close(), world.fleet.close(), world.planner.close(), return_exceptions=True)
        watched.set()
        if watching is not None:
            await asyncio.gather(watching, return_exceptions=True)
    lost = tasks.lost_leadership or operator.lost_leadership
    return EXIT_NOT_LEADER if lost else EXIT_FAILED if tasks.failed else 0


class Background:
    """Tasks that run for as long as the process. One that fails ends it: a supervisor starts it anew."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._tasks: list[asyncio.Task[Any]] = []
        self.failed = self.lost_leadership = False

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        LOG.error("%s ended", task.get_name(), exc_info=error)
        self.failed = True
        self.lost_leadership = self.lost_leadership or isinstance(error, LeadershipLost)
        self._stop.set()


async def _world(kube: Kube, options: Options, leadership: Leadership, fleet: Fleet, identity: str) -> World:
    """Only for who leads: the orchestrator takes what runs as its own."""
    orchestrator, peers, planner = await _orchestrator(kube, options)
    await asked_again("what runs", orchestrator.adopt)
    return World(
        kube=kube,
        cache=Cache(),
        registry=Registry(),
        fleet=fleet,
        orchestrator=orchestrator,
        planner=planner,
        revisions=Revisions(kube),
        events=Events(kube, identity),
        leadership=leadership,
        peers=peers,
    )


async def _orchestrator(kube: Kube, options: Options) -> tuple[Orchestrator, Peers, PlannerClient]:
    """With who is called, and the planner: a pod of its own, or a process beside the replicas' processes."""
    if options.pods is not None:
        assert options.planner is not None, "parse saw to it"
        proven = await Proven.start(SecretStore(kube, options.lease_namespace))
        planner = PlannerClient(options.planner, lambda: None, lambda: "", proven.dialer(PLANNER))
        return KubernetesOrchestrator(kube, options.pods), proven, planner
    certificates = options.state / CERTIFICATES if options.mutual_tls else None
    local = ProcessOrchestrator(options.state, planner=options.planner is None, certificates=certificates)
    peers: Peers = Trusted()
    if certificates is not None:
        store = FileStore(certificates)
        peers = await Proven.start(store, store.retain)
    address = options.planner or local.planner_address
    return local, peers, PlannerClient(address, local.kill_planner, local.explain_planner, peers.dialer(PLANNER))


def _work(operator: Operator, world: World) -> list[tuple[str, Coroutine[Any, Any, None]]]:
    return [
        ("orchestrator", world.orchestrator.run()),
        ("processes", Processes(world, operator.queue.add).run()),
        ("fleet", world.fleet.run()),
        ("work queue", operator.queue.run()),
        ("statuses", operator.publisher.run()),
        ("resync", operator.resync()),
        ("certificates", world.peers.run()),
        *_store_secrets(world),
    ]


def _store_secrets(world: World) -> list[tuple[str, Coroutine[Any, Any, None]]]:
    if not isinstance(world.orchestrator, ProcessOrchestrator):
        return []
    files = world.orchestrator.stores
    return [("store secrets", StoreSecrets(world.kube, world.cache, files, world.secret_troubles).run())]


async def _stopped(stop: asyncio.Event) -> None:
    """kopf takes the signals when it starts; they are ours again a moment later, so that we end in our order."""
    while not stop.is_set():
        _take_signals(stop)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await stop.wait()


def _take_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

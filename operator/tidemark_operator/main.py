"""`python -m tidemark_operator`: start-up and clean-up.

    stand by ─► term ─► list and load ─► processes, connections, queue, statuses, gateway ─► watches
    stop ─► queue, watches and connections end ─► the Lease is released; replicas continue without an operator

Exit status: 0 after a signal, 1 after an error (one line on stderr), 3 when another operator leads.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

from prometheus_client.core import Metric

from tidemark_operator import metrics
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.certificates.files import FolderStore
from tidemark_operator.certificates.peers import Peers, SocketPeers
from tidemark_operator.certificates.secrets import SecretStore
from tidemark_operator.certificates.tls_peers import TlsPeers
from tidemark_operator.errors import LeadershipLost, OperatorError
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.gateway.server.endpoint_slice import EndpointPublisher
from tidemark_operator.gateway.server.server import Gateway
from tidemark_operator.handlers.reconcile.reconcile_loop import ReconcileLoop
from tidemark_operator.handlers.reconcile.replica_processes import ReplicaProcesses
from tidemark_operator.handlers.reconcile.secret_copies import SecretCopies
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.watch import namespace_access
from tidemark_operator.handlers.watch.watches import KOPF_END_LOGGERS, watch
from tidemark_operator.introspection.feed import IntrospectionFeed
from tidemark_operator.introspection.retained_tables import RetainedTables
from tidemark_operator.kube.cache import Cache
from tidemark_operator.kube.client import Kube
from tidemark_operator.kube.events import Events
from tidemark_operator.kube.leadership import Leadership
from tidemark_operator.kube.revisions import Revisions
from tidemark_operator.kube.startup_retry import retry_at_startup
from tidemark_operator.options import OperatorOptions, parse
from tidemark_operator.orchestrator.interface import Orchestrator
from tidemark_operator.orchestrator.kubernetes.orchestrator import KubernetesOrchestrator
from tidemark_operator.orchestrator.local.orchestrator import ProcessOrchestrator
from tidemark_operator.planning.client import PlannerClient
from tidemark_protocol import tracing
from tidemark_protocol.tls.identities import PLANNER

LOG = logging.getLogger("tidemark_operator")
CERTIFICATES = "certificates"
"""The folder of certificates, in the state folder."""
EXIT_FAILED = 1
EXIT_NOT_LEADER = 3


def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for chatty in ("kopf", "kubernetes.aio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    for name in KOPF_END_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    os.umask(0o077)
    tracing.start("tidemark-operator")
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        gc.collect()
        gc.freeze()  # a full collection walked the imported modules for 57 ms, and every answer waited for it
        return asyncio.run(run(options))
    except OperatorError as error:
        print(f"tidemark_operator: {error}", file=sys.stderr)
        return EXIT_FAILED


async def run(options: OperatorOptions) -> int:
    """Run until a signal, or until another operator leads; return the exit status. Raises OperatorError."""
    stop = asyncio.Event()
    _take_signals(stop)
    async with Kube.connect(options.kubeconfig, options.namespaces) as kube:
        identity = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        leadership = Leadership(kube, options.lease_namespace, identity)
        fleet, registry = Fleet(leadership, options.lease_seconds), Registry(options.allowed_hosts)
        if options.metrics_port is not None:

            def samples() -> list[Metric]:
                return [*metrics.leading(leadership), *metrics.metrics(fleet, registry)]

            metrics.serve(samples, options.metrics_port, options.metrics_host)
        tasks = Background(stop)
        try:
            if not await _leads(leadership, stop):
                return 0
            options.state.mkdir(parents=True, exist_ok=True, mode=0o700)
            kube.fence = leadership.check
            tasks.start("leadership", leadership.keep())
            if options.pods is not None:
                await namespace_access.begin(kube)
            return await _lead(
                await _context(kube, options, leadership, (fleet, registry), identity), options, tasks, stop
            )
        finally:
            await tasks.end()
            await leadership.release()


async def _leads(leadership: Leadership, stop: asyncio.Event) -> bool:
    """Wait until this process leads; False where `stop` is set first."""
    standing, stopped = asyncio.create_task(leadership.stand_by()), asyncio.create_task(stop.wait())
    await asyncio.wait((standing, stopped), return_when=asyncio.FIRST_COMPLETED)
    for task in (standing, stopped):
        task.cancel()
    await asyncio.gather(standing, stopped, return_exceptions=True)
    return not stop.is_set() and standing.result() > 0


async def _lead(context: ReconcileContext, options: OperatorOptions, tasks: Background, stop: asyncio.Event) -> int:
    """Lead: start everything, wait for `stop`, and end everything; return the exit status."""
    context.fleet.stand()
    operator = ReconcileLoop(context, stop)
    context.fleet.listener = operator
    tables = RetainedTables(context, operator.deleter)
    parts = context, operator.sources, tables
    sql = options.defines, options.passwords
    gateway = Gateway(*parts, options.state, options.gateway, options.gateway_file, *sql)
    announced = _announced(context, options)
    try:
        await operator.start()
        is_first = context.is_first_leader
        left_out = set(options.namespaces) - set(context.kube.namespaces)
        if options.default_instance is not None and options.default_instance.namespace not in left_out:
            await options.default_instance.ensure(context.kube)
        await gateway.start()
        if is_first:
            context.fleet.go_on()
        else:
            context.fleet.stand()  # what has loaded for long has left clients no time yet
        for name, work in _work(operator, context, options):
            tasks.start(name, work)
        if announced is not None:
            tasks.start("gateway's Service", announced.run())
        await stop.wait()
    finally:
        await tasks.end()
        if announced is not None:
            await announced.withdraw()
        await operator.close()
        await asyncio.gather(gateway.close(), context.fleet.close(), context.planner.close(), return_exceptions=True)
    lost = tasks.lost_leadership or operator.lost_leadership
    return EXIT_NOT_LEADER if lost else EXIT_FAILED if tasks.failed else 0


def _announced(context: ReconcileContext, options: OperatorOptions) -> EndpointPublisher | None:
    if options.gateway_service is None:
        return None
    place = (options.lease_namespace, options.gateway_service)
    return EndpointPublisher(context.kube, *place, lambda: options.gateway.authorities(context.peers))


class Background:
    """Tasks that run as long as the process. A failure of one sets `stop`: the process ends, its supervisor restarts
    it."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._tasks: list[asyncio.Task[Any]] = []
        self.failed = self.lost_leadership = False

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._on_end)
        self._tasks.append(task)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_end(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        foreseen = isinstance(error, OperatorError)
        LOG.error("%s ended%s", task.get_name(), f": {error}" if foreseen else "", exc_info=None if foreseen else error)
        self.failed = True
        self.lost_leadership = self.lost_leadership or isinstance(error, LeadershipLost)
        self._stop.set()


async def _context(
    kube: Kube, options: OperatorOptions, leadership: Leadership, kept: tuple[Fleet, Registry], identity: str
) -> ReconcileContext:
    """The leader's state. The orchestrator adopts the replicas that run. `kept`: what metrics are read from."""
    orchestrator, peers, planner = await _orchestrator(kube, options)
    await retry_at_startup("the running replicas", orchestrator.adopt)
    return ReconcileContext(
        kube=kube,
        cache=Cache(),
        registry=kept[1],
        fleet=kept[0],
        orchestrator=orchestrator,
        planner=planner,
        revisions=Revisions(kube),
        events=Events(kube, identity),
        leadership=leadership,
        peers=peers,
    )


async def _orchestrator(kube: Kube, options: OperatorOptions) -> tuple[Orchestrator, Peers, PlannerClient]:
    """The orchestrator, the certificates of its peers, and the planner: a pod, or a process of this machine."""
    if options.pods is not None:
        assert options.planner is not None, "parse requires it"
        proven = await TlsPeers.start(SecretStore(kube, options.lease_namespace))
        planner = PlannerClient(options.planner, lambda: None, lambda: "", proven.dialer(PLANNER))
        return KubernetesOrchestrator(kube, options.pods), proven, planner
    certificates = options.state / CERTIFICATES if options.mutual_tls else None
    local = ProcessOrchestrator(options.state, planner=options.planner is None, certificates=certificates)
    peers: Peers = SocketPeers()
    if certificates is not None:
        store = FolderStore(certificates)
        peers = await TlsPeers.start(store, store.retain)
    address = options.planner or local.planner_address
    return local, peers, PlannerClient(address, local.kill_planner, local.explain_planner, peers.dialer(PLANNER))


def _work(
    operator: ReconcileLoop, context: ReconcileContext, options: OperatorOptions
) -> list[tuple[str, Coroutine[Any, Any, None]]]:
    return [
        ("orchestrator", context.orchestrator.run()),
        ("processes", ReplicaProcesses(context, operator.queue.add).run()),
        ("fleet", context.fleet.run()),
        ("work queue", operator.queue.run()),
        ("tombstones", operator.deleter.collecting.run()),
        ("statuses", operator.publisher.run()),
        ("resync", operator.resync()),
        ("introspection sources", IntrospectionFeed(context).run()),
        ("watches", watch(operator.observed, operator.request_resync, options.kubeconfig, context.kube.namespaces)),
        ("certificates", context.peers.run()),
        *(
            [("namespaces", namespace_access.stays(context.kube, options.namespaces))]
            if options.pods is not None
            else []
        ),
        *_secret_copies(context),
    ]


def _secret_copies(context: ReconcileContext) -> list[tuple[str, Coroutine[Any, Any, None]]]:
    if not isinstance(context.orchestrator, ProcessOrchestrator):
        return []
    stores, sources = context.orchestrator.stores, context.orchestrator.source_secrets
    copies = SecretCopies(context.kube, context.cache, stores, sources, context.secret_problems)
    return [("secrets", copies.run())]


def _take_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

"""The command line of `python -m tidemark_operator`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_operator.errors import OperatorError
from tidemark_operator.fleet.fleet import LEASE_SECONDS
from tidemark_operator.gateway.server.endpoint_slice import GatewayService
from tidemark_operator.gateway.server.listener import (
    LOOPBACK,
    ClientAuthority,
    IssuedCertificate,
    ListenerConfig,
    TlsFolder,
)
from tidemark_operator.handlers.default_instance import DefaultInstance
from tidemark_operator.orchestrator.kubernetes.settings import USER, KubernetesSettings
from tidemark_operator.resources.addresses.address import InvalidAddress
from tidemark_operator.resources.addresses.allowed_hosts import EVERYTHING, AllowedHosts
from tidemark_protocol import tracing

MAX_LEASE_SECONDS = 30 * 86400.0


@dataclass(frozen=True)
class OperatorOptions:
    """The parsed command line; paths are absolute."""

    kubeconfig: Path | None
    state: Path
    namespaces: tuple[str, ...]
    lease_namespace: str
    gateway: ListenerConfig
    gateway_file: Path
    defines: bool
    """Whether SQL defines Dataflows."""
    passwords: bool
    """Whether ServiceAccounts log in by passwords of Secrets."""
    lease_seconds: float
    """The seconds behind the read policy for which clients' leases keep relations, at most; 0: no leases."""
    gateway_service: GatewayService | None
    planner: str | None
    metrics_port: int | None
    mutual_tls: bool
    metrics_host: str
    default_instance: DefaultInstance | None
    allowed_hosts: AllowedHosts
    """The addresses that sources and sinks may connect to."""
    pods: KubernetesSettings | None
    """Settings of replicas as pods; None: replicas are processes of this machine."""


def parse(arguments: Sequence[str]) -> OperatorOptions:
    """Parse the command line; exits with a message for a wrong option.

    Raises:
        OperatorError: options contradict each other.
    """
    parser = argparse.ArgumentParser(prog="tidemark_operator", description="Runs Tidemark's dataflows.")
    parser.add_argument(
        "--kubeconfig", type=Path, help="kubeconfig of the cluster (default: the pod's service account)"
    )
    parser.add_argument(
        "--orchestrator",
        choices=["process", "kubernetes"],
        default="process",
        help="how replicas run: as processes of this machine, or as pods (default: %(default)s)",
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        required=True,
        help="folder for process records, logs, scratch files and the gateway's token",
    )
    parser.add_argument(
        "--namespace", action="append", default=[], help="serve this namespace (repeatable; default: all)"
    )
    parser.add_argument("--lease-namespace", default="default", help="namespace of the Lease (default: %(default)s)")
    _gateway_arguments(parser.add_argument_group("the gateway"))
    parser.add_argument(
        "--planner", help="host:port of a planner that runs elsewhere (default: a process of the operator)"
    )
    _source_arguments(parser.add_argument_group("sources"))
    parser.add_argument("--metrics-port", type=int, help="port for Prometheus, without authentication (default: none)")
    parser.add_argument("--metrics-host", default=LOOPBACK, help="address for Prometheus (default: %(default)s)")
    parser.add_argument("--default-instance", help="NAMESPACE/NAME of a ComputeInstance to create if it does not exist")
    parser.add_argument("--default-location", help="storage location of the default instance")
    parser.add_argument("--default-secret", help="Secret with the credentials of the default instance's object store")
    parser.add_argument(
        "--mutual-tls",
        action="store_true",
        help="mutual TLS between operator, replicas and planner, as in a cluster (default on this machine: unix "
        "sockets that only this user can open)",
    )
    _pod_arguments(parser.add_argument_group("replicas as pods"))
    given = parser.parse_args(arguments)
    if given.orchestrator == "kubernetes" and not (given.replica_image and given.planner):
        parser.error(
            "--orchestrator kubernetes needs --replica-image and --planner: the image of replicas, and the "
            "planner's address"
        )
    return OperatorOptions(
        given.kubeconfig.absolute() if given.kubeconfig else None,
        given.state_dir.absolute(),
        tuple(given.namespace),
        given.lease_namespace,
        _listening(given),
        (given.gateway_file or given.state_dir / "gateway.json").absolute(),
        not given.no_definitions,
        not given.no_passwords,
        given.lease_seconds,
        _service(given),
        given.planner,
        given.metrics_port,
        given.mutual_tls,
        given.metrics_host,
        DefaultInstance.parse(given.default_instance, given.default_location, given.default_secret),
        _allowed_hosts(given),
        _pods(given) if given.orchestrator == "kubernetes" else None,
    )


def _source_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--source-hosts",
        action="append",
        metavar="PATTERN",
        help="address that sources and sinks may connect to: HOST, HOST:PORT or HOST:PORT-PORT, with *.NAME for names "
        "below one, 10.0.0.0/8 or [fd00::/8] for networks and * for all but local ones (repeatable; default: none for "
        "pods, all for processes)",
    )


def _allowed_hosts(given: argparse.Namespace) -> AllowedHosts:
    default = EVERYTHING if given.orchestrator == "process" else ()
    try:
        return AllowedHosts.parse(default if given.source_hosts is None else given.source_hosts)
    except InvalidAddress as error:
        raise OperatorError(f"--source-hosts: {error}") from None


def _gateway_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--gateway-host", default=LOOPBACK, help="address on which the gateway listens (default: %(default)s)"
    )
    group.add_argument("--gateway-port", type=int, default=0, help="port of the gateway (default: any free port)")
    group.add_argument(
        "--gateway-tls", type=Path, help="folder with tls.crt, tls.key and ca.crt; required beyond loopback"
    )
    group.add_argument(
        "--gateway-client-ca",
        metavar="cluster|FILE",
        help="accept client certificates of the cluster's authority, or of the one in FILE",
    )
    group.add_argument(
        "--gateway-client-port", type=int, default=0, help="port for client certificates (default: any free port)"
    )
    group.add_argument(
        "--gateway-http-port",
        type=int,
        help="port for queries, subscribes and rows over HTTP; 0: any free port (default: no HTTP)",
    )
    group.add_argument(
        "--gateway-file", type=Path, help="file in which clients find the gateway (default: STATE_DIR/gateway.json)"
    )
    group.add_argument(
        "--gateway-service",
        metavar="NAME",
        help="a Service in the Lease's namespace: the leader writes its pod into the EndpointSlice, and without "
        "--gateway-tls has a certificate of the operator's own authority for it",
    )
    group.add_argument(
        "--gateway-pod", metavar="NAME/ADDRESS", help="this operator's pod and its address, the Service's endpoint"
    )
    group.add_argument(
        "--gateway-host-name", action="append", default=[], help="a further DNS name in that certificate (repeatable)"
    )
    group.add_argument(
        "--no-definitions",
        action="store_true",
        help="refuse CREATE, ALTER and DROP of SQL (default: users who may write the objects do so by SQL)",
    )
    group.add_argument(
        "--no-passwords",
        action="store_true",
        help="take tokens and certificates alone (default: also passwords of Secrets that ServiceAccounts name)",
    )
    group.add_argument(
        "--lease-seconds",
        type=_seconds,
        default=LEASE_SECONDS,
        help="how far behind the read policy open transactions and streams of clients keep relations, at most; 0: they "
        "hold nothing (default: %(default)g)",
    )


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= MAX_LEASE_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 to {MAX_LEASE_SECONDS:g}")
    return number


def _service(given: argparse.Namespace) -> GatewayService | None:
    pod, _, address = (given.gateway_pod or "").partition("/")
    if (given.gateway_service is None) != (given.gateway_pod is None) or (given.gateway_pod and not address):
        raise OperatorError("--gateway-service NAME and --gateway-pod NAME/ADDRESS belong together: give both")
    return GatewayService(given.gateway_service, pod, address) if given.gateway_service else None


def _tls(given: argparse.Namespace) -> TlsFolder | IssuedCertificate | None:
    if given.gateway_host_name and (given.gateway_tls or not given.gateway_service):
        raise OperatorError("--gateway-host-name needs --gateway-service, and no --gateway-tls")
    if given.gateway_tls:
        return TlsFolder(given.gateway_tls.absolute())
    if (service := _service(given)) is None:
        return None
    if given.orchestrator == "process" and not given.mutual_tls:
        raise OperatorError("--gateway-service needs a certificate: give --gateway-tls, or --mutual-tls")
    return IssuedCertificate((*service.hosts(given.lease_namespace), *given.gateway_host_name))


def _listening(given: argparse.Namespace) -> ListenerConfig:
    tls = _tls(given)
    authority = given.gateway_client_ca
    clients = ClientAuthority.named(authority, given.gateway_client_port) if authority else None
    if clients is None and given.gateway_client_port:
        raise OperatorError("--gateway-client-port needs --gateway-client-ca: give both")
    return ListenerConfig(given.gateway_host, given.gateway_port, tls, clients, given.gateway_http_port)


def _pod_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--replica-image", help="image of replicas and their executors")
    group.add_argument("--replica-image-pull-policy", choices=["Always", "IfNotPresent", "Never"])
    group.add_argument(
        "--replica-image-pull-secret", action="append", default=[], help="Secret for pulling the image (repeatable)"
    )
    group.add_argument(
        "--driver-service-account", help="service account of replicas with executors (default: tidemark-driver)"
    )
    group.add_argument("--executor-service-account", help="service account of executors (default: tidemark-executor)")
    user = group.add_argument("--replica-user", type=_user, default=USER, metavar="UID")
    user.help = "user id of the pods; none: the cluster's choice (default: %(default)s)"


def _user(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a user id: give a number from 1 on (not root), or none")
    return int(text)


def _pods(given: argparse.Namespace) -> KubernetesSettings:
    settings = {
        "pull_policy": given.replica_image_pull_policy,
        "pull_secrets": tuple(given.replica_image_pull_secret),
        "driver_account": given.driver_service_account,
        "executor_account": given.executor_service_account,
    }
    given_by_name = {name: value for name, value in settings.items() if value}
    traced = tuple(tracing.endpoint(os.environ).items())
    return KubernetesSettings(given.replica_image, user=given.replica_user, tracing=traced, **given_by_name)

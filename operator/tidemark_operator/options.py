"""What `python -m tidemark_operator` is told."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_operator.errors import OperatorError
from tidemark_operator.gateway.server.endpoint_slice import Service
from tidemark_operator.gateway.server.listener import LOOPBACK, Clients, Issued, Listening, Tls
from tidemark_operator.handlers.default_instance import DefaultInstance
from tidemark_operator.orchestrator.kubernetes.settings import USER, Settings


@dataclass(frozen=True)
class Options:
    kubeconfig: Path | None
    state: Path
    namespaces: tuple[str, ...]
    lease_namespace: str
    gateway: Listening
    gateway_file: Path
    gateway_service: Service | None
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
    _gateway_arguments(parser.add_argument_group("the gateway"))
    parser.add_argument("--planner", help="host:port of a planner that runs elsewhere (default: a process of ours)")
    parser.add_argument("--metrics-port", type=int, help="for Prometheus, without authentication (default: none)")
    parser.add_argument("--metrics-host", default=LOOPBACK, help="where that is (%(default)s)")
    parser.add_argument("--default-instance", help="NAMESPACE/NAME of a ComputeInstance to make where there is none")
    parser.add_argument("--default-location", help="where that one's shards are to be")
    parser.add_argument("--default-secret", help="with the object store's credentials, if they are in one")
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
        _service(given),
        given.planner,
        given.metrics_port,
        given.mutual_tls,
        given.metrics_host,
        DefaultInstance.parse(given.default_instance, given.default_location, given.default_secret),
        _pods(given) if given.orchestrator == "kubernetes" else None,
    )


def _gateway_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--gateway-host", default=LOOPBACK, help="where the gateway listens (%(default)s)")
    group.add_argument("--gateway-port", type=int, default=0, help="and its port (default: any free one)")
    group.add_argument("--gateway-tls", type=Path, help="tls.crt, tls.key, ca.crt: needed beyond loopback")
    group.add_argument("--gateway-client-ca", metavar="cluster|FILE", help="client certificates of it open the gateway")
    group.add_argument("--gateway-client-port", type=int, default=0, help="where they do (default: any free one)")
    group.add_argument("--gateway-file", type=Path, help="where clients find the gateway (STATE_DIR/gateway.json)")
    group.add_argument(
        "--gateway-service",
        metavar="NAME",
        help="a Service beside the Lease: who leads writes itself into its EndpointSlice, and without --gateway-tls "
        "has a certificate for it, of the operator's own authority",
    )
    group.add_argument("--gateway-pod", metavar="NAME/ADDRESS", help="where that leads: this operator's pod")
    group.add_argument("--gateway-host-name", action="append", default=[], help="in the certificate, too (repeatable)")


def _service(given: argparse.Namespace) -> Service | None:
    pod, _, address = (given.gateway_pod or "").partition("/")
    if (given.gateway_service is None) != (given.gateway_pod is None) or (given.gateway_pod and not address):
        raise OperatorError("--gateway-service NAME leads to --gateway-pod NAME/ADDRESS: give both")
    return Service(given.gateway_service, pod, address) if given.gateway_service else None


def _tls(given: argparse.Namespace) -> Tls | Issued | None:
    if given.gateway_host_name and (given.gateway_tls or not given.gateway_service):
        raise OperatorError("--gateway-host-name is for the certificate of --gateway-service without --gateway-tls")
    if given.gateway_tls:
        return Tls(given.gateway_tls.absolute())
    if (service := _service(given)) is None:
        return None
    if given.orchestrator == "process" and not given.mutual_tls:
        raise OperatorError("--gateway-service needs a certificate: give --gateway-tls, or --mutual-tls")
    return Issued((*service.hosts(given.lease_namespace), *given.gateway_host_name))


def _listening(given: argparse.Namespace) -> Listening:
    tls = _tls(given)
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
    user = group.add_argument("--replica-user", type=_user, default=USER, metavar="UID")
    user.help = "of their pods; none: as the cluster chooses (%(default)s)"


def _user(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: a number from 1 on, which is not root's, or none")
    return int(text)


def _pods(given: argparse.Namespace) -> Settings:
    asked = {
        "pull_policy": given.replica_image_pull_policy,
        "pull_secrets": tuple(given.replica_image_pull_secret),
        "driver_account": given.driver_service_account,
        "executor_account": given.executor_service_account,
    }
    given_by_name = {name: value for name, value in asked.items() if value}
    return Settings(given.replica_image, user=given.replica_user, **given_by_name)

"""The way to the operator's gateway, and who we are to it.

    --server HOST:PORT         where the Service of the chart, or a load balancer, has it
    --gateway-file FILE        $TIDEMARK_GATEWAY_FILE, or gateway.json beside the kubeconfig in use: an operator of this
                               machine wrote it when it began to listen
    none of these              in the kubeconfig's cluster: cluster.py

    {"address": "127.0.0.1:40123", "tokenFile": "/.../gateway.token",
     "caFile": "/.../ca.crt", "certificateAddress": "127.0.0.1:40124"}

What we show is one of:

    --service-account NAME    a token that the API server makes for it, for the gateway alone: of ten minutes, or of
                              twelve hours where it follows a subscribe, which ends with it
    --token-file FILE         such a token that is there already: in a pod, a projected one
    --client-certificate      the one that kubectl shows to the API server, where the gateway takes them
    tokenFile                 the operator's own token, which only its user can read

A token goes into the call's metadata, nowhere else; a certificate's key goes nowhere.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc

from tidemark_cli import cluster, kubeconfig
from tidemark_cli.errors import GatewayFailed, GatewayUnknown
from tidemark_protocol.frames import GRPC_OPTIONS
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayStub

FILE_NAME = "gateway.json"
AUDIENCE, TOKEN_LIFE, TOKEN_LIFE_OF_SUBSCRIBES = "tidemark-gateway", "10m", "12h"
_LARGEST_FILE = 64 * 1024
KEEPALIVE = (
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
)
"""A gateway that vanished without a word is found, also by who waits for changes that do not come. Servers end
connections that ask more often than every five minutes, unless they were told otherwise."""


@dataclass(frozen=True)
class Gateway:
    """Where the gateway listens, and who we are to it."""

    address: str
    token: str | None
    authority: bytes | None = None
    """Who signed the gateway's certificate; None: it listens on loopback."""
    certificate: kubeconfig.Certificate | None = None
    """What is shown instead of a token."""
    leader: cluster.Leader | None = None
    """Where kubectl is to forward a port to; then `address` is not known yet."""

    @property
    def where(self) -> str:
        """For people: of a forwarded port, the pod that it leads to."""
        return f"pod {self.leader.namespace}/{self.leader.pod}" if self.leader else self.address

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)


@dataclass(frozen=True)
class Credentials:
    """What to show, if not the operator's own token."""

    service_account: str | None = None
    namespace: str = "default"
    token_file: Path | None = None
    client_certificate: bool = False
    life: str = TOKEN_LIFE
    """Of a token that is made."""

    def token(self, own: Path | None) -> str:
        """Raises OSError, GatewayFailed. `own`: the operator's, on its machine."""
        if self.service_account is not None:
            return _token_of(self.service_account, self.namespace, self.life)
        if (file := self.token_file or own) is None:
            raise GatewayFailed("who asks? Give --service-account NAME, --token-file FILE or --client-certificate")
        return _token_in(file)


@dataclass(frozen=True)
class Place:
    """Where the gateway is, as far as the command line says."""

    file: str | None = None
    server: str | None = None
    authority: Path | None = None
    operator_namespace: str = cluster.NAMESPACE


def find(place: Place, environment: dict[str, str], credentials: Credentials) -> Gateway:
    """The gateway that the user means; raises GatewayUnknown, GatewayFailed."""
    if place.authority is not None and place.server is None:
        raise GatewayFailed("--certificate-authority is of --server: give both")
    try:
        if place.server is not None:
            return _at_server(place.server, place.authority, credentials)
        if (path := _file(place.file, environment)) is not None:
            return _in_file(path, credentials)
        return _in_cluster(place.operator_namespace, credentials)
    except FileNotFoundError as error:
        raise GatewayUnknown(f"{error.filename} does not exist: is the operator running? (try `make demo`)") from None
    except PermissionError as error:
        raise GatewayFailed(
            f"{error.filename} cannot be read: only the user who runs the operator may. Give --service-account NAME, "
            "one that may get dataflows/data, or --client-certificate"
        ) from None
    except OSError as error:
        raise GatewayFailed(f"{error.filename or 'the gateway'} cannot be read: {error.strerror or error}") from None


def _at_server(address: str, authority_file: Path | None, credentials: Credentials) -> Gateway:
    """Raises OSError, GatewayFailed."""
    authority = authority_file.read_bytes() if authority_file else None
    if credentials.client_certificate:
        if authority is None:
            raise GatewayFailed("--client-certificate needs TLS: give --certificate-authority FILE")
        return Gateway(address, None, authority, kubeconfig.certificate())
    return Gateway(_safe(address, authority), credentials.token(None), authority)


def _in_cluster(namespace: str, credentials: Credentials) -> Gateway:
    """Raises OSError, GatewayUnknown, GatewayFailed."""
    if credentials.client_certificate:
        leader = cluster.leader(namespace, cluster.CERTIFICATES)
        return Gateway("", None, leader.authority, kubeconfig.certificate(), leader)
    leader = cluster.leader(namespace, cluster.TOKENS)
    return Gateway("", credentials.token(None), leader.authority, leader=leader)


def _in_file(path: Path, credentials: Credentials) -> Gateway:
    """Raises OSError, GatewayFailed."""
    try:
        raw = json.loads(path.read_bytes()[:_LARGEST_FILE])
        authority = Path(raw["caFile"]).read_bytes() if "caFile" in raw else None
        if credentials.client_certificate:
            return _by_certificate(raw, authority)
        token = credentials.token(Path(raw["tokenFile"]))
        return Gateway(_safe(str(raw["address"]), authority), token, authority)
    except (ValueError, KeyError, TypeError):
        raise GatewayFailed(f"{path} is not what an operator writes: restart the operator") from None


def _by_certificate(raw: dict[str, Any], authority: bytes | None) -> Gateway:
    """Raises GatewayFailed."""
    if authority is None or "certificateAddress" not in raw:
        raise GatewayFailed(
            "the gateway takes no client certificates: it was started without --gateway-client-ca. "
            "Give --service-account NAME"
        )
    return Gateway(str(raw["certificateAddress"]), None, authority, kubeconfig.certificate())


def _safe(address: str, authority: bytes | None) -> str:
    """Raises GatewayFailed where the token could be read on its way."""
    try:
        loopback = ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:  # a name may mean anything
        loopback = False
    if authority is None and not loopback:
        raise GatewayFailed(
            f"{address} is not on loopback, so the token needs TLS: give --certificate-authority, or a caFile"
        )
    return address


def _token_in(file: Path) -> str:
    """Raises OSError, GatewayFailed for what is none."""
    token = file.read_bytes()[:_LARGEST_FILE].strip()
    if not token or not token.isascii() or not token.decode().isprintable():
        raise GatewayFailed(f"{file} holds no token")
    return token.decode()


def _token_of(service_account: str, namespace: str, life: str) -> str:
    """TokenRequest, by kubectl, which knows how to log in."""
    command = ["create", "token", service_account, "--namespace", namespace]
    command += ["--audience", AUDIENCE, "--duration", life]
    done = kubeconfig.kubectl("--service-account", *command)
    if done.returncode:
        raise GatewayFailed(f"no token for ServiceAccount {service_account}: {done.stderr.strip()}")
    return done.stdout.strip()


def _file(given: str | None, environment: dict[str, str]) -> Path | None:
    """None: nobody speaks of one, and there is none."""
    if named := given or environment.get("TIDEMARK_GATEWAY_FILE"):
        return Path(named)
    kubeconfig = environment.get("KUBECONFIG", "").split(os.pathsep)[0]
    beside = Path(kubeconfig).parent / FILE_NAME
    return beside if kubeconfig and beside.exists() else None


@contextmanager
def connected(gateway: Gateway) -> Iterator[GatewayStub]:
    """A stub for calls; what they raise becomes a GatewayFailed."""
    way = cluster.forwarded(gateway.leader) if gateway.leader else nullcontext(gateway.address)
    with way as address, _channel(replace(gateway, address=address)) as channel:
        try:
            yield GatewayStub(channel)  # type: ignore[no-untyped-call]
        except grpc.RpcError as error:
            raise _failure(gateway, error) from None


def _channel(gateway: Gateway) -> grpc.Channel:
    if gateway.authority is None:
        return grpc.insecure_channel(gateway.address, options=[*GRPC_OPTIONS, *KEEPALIVE])
    shown = gateway.certificate
    pair = (shown.key, shown.certificate) if shown else (None, None)
    credentials = grpc.ssl_channel_credentials(gateway.authority, *pair)
    known_as = [("grpc.ssl_target_name_override", gateway.leader.host)] if gateway.leader else []
    return grpc.secure_channel(gateway.address, credentials, options=[*GRPC_OPTIONS, *KEEPALIVE, *known_as])


def _failure(gateway: Gateway, error: Any) -> GatewayFailed:
    if gateway.certificate is not None and error.code() is grpc.StatusCode.UNAVAILABLE:
        return GatewayFailed(
            f"no gateway answers at {gateway.where}, or it does not take the client certificate: it is for the "
            "cluster's own users, of the authority that --gateway-client-ca names"
        )
    if gateway.certificate is not None and error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return GatewayFailed(error.details())
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return GatewayFailed(f"no gateway answers at {gateway.where}: is the operator running?")
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return GatewayFailed("the gateway does not know this token: it has expired, or the operator was restarted")
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return GatewayFailed(f"not answered in time: {error.details()}")
    return GatewayFailed(error.details() or str(error.code()))

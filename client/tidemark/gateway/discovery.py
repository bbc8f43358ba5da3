"""Where the gateway is, and with which credentials a command calls it.

    --server HOST:PORT         the address of the chart's Service, or of a load balancer
    --gateway-file FILE        $TIDEMARK_GATEWAY_FILE, or gateway.json beside the kubeconfig: an operator on this
                               machine writes it when it begins to listen. With --context, gateway.json is left out:
                               it does not say which context it belongs to.
    none of these              the cluster of the kubeconfig's context: port_forward.py

    {"address": "127.0.0.1:40123", "tokenFile": "/.../gateway.token",
     "caFile": "/.../ca.crt", "certificateAddress": "127.0.0.1:40124"}

The credentials are one of:

    --service-account NAME    a token that the API server makes for the gateway's audience only. It lives ten minutes,
                              or twelve hours for a subscribe, which ends with it.
    --token-file FILE         a token that exists already: in a pod, a projected one
    --client-certificate      the certificate that kubectl shows the API server, where the gateway takes them
    tokenFile                 the operator's own token, which only the operator's user can read

A token goes into the call's metadata only. The key of a certificate goes nowhere.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark.errors import GatewayFailed, GatewayUnknown
from tidemark.gateway.kubectl import ClientCertificate, Kubectl
from tidemark.gateway.port_forward import CERTIFICATE_PORT, TOKEN_PORT, Leader, find_leader

FILE_NAME = "gateway.json"
FILE_VARIABLE = "TIDEMARK_GATEWAY_FILE"
OPERATOR_NAMESPACE = "tidemark-system"
TOKEN_LIFETIME = "10m"
_MAX_FILE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Gateway:
    """The gateway's address, and what a call shows it."""

    address: str
    token: str | None = field(repr=False)
    authority: bytes | None = None
    """The authority of the gateway's certificate, as PEM; None: no TLS, on loopback only."""
    certificate: ClientCertificate | None = None
    """The client certificate that a call shows instead of a token."""
    leader: Leader | None = None
    """The pod to forward a port to. The address is not known before that."""

    @property
    def name(self) -> str:
        """The address as messages show it. The number of a forwarded port says nothing, so this names its pod."""
        return f"pod {self.leader.namespace}/{self.leader.pod}" if self.leader else self.address

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)


@dataclass(frozen=True)
class Location:
    """The options of the command line about the gateway's address."""

    file: Path | None = None
    server: str | None = None
    authority: Path | None = None
    """The file with the certificate of the authority of `server`."""
    operator_namespace: str = OPERATOR_NAMESPACE
    kubectl: Kubectl = field(default_factory=Kubectl)


@dataclass(frozen=True)
class Credentials:
    """The options of the command line about credentials. With none, a call shows the operator's own token."""

    service_account: str | None = None
    namespace: str = "default"
    """The namespace of the ServiceAccount."""
    token_file: Path | None = None
    client_certificate: bool = False
    lifetime: str = TOKEN_LIFETIME
    """The lifetime of a ServiceAccount's token, as kubectl writes durations."""
    text: str | None = field(default=None, repr=False)
    """The token itself."""

    def token(self, kubectl: Kubectl, own_file: Path | None) -> str:
        """`own_file`: the file of the operator's own token, on its machine.

        Raises:
            OSError: the file cannot be read.
            GatewayFailed: there are no credentials, or they yield no token.
        """
        if self.text is not None:
            return self.text
        if self.service_account is not None:
            return kubectl.token(self.service_account, self.namespace, self.lifetime)
        if (file := self.token_file or own_file) is None:
            raise GatewayFailed(
                "no credentials for the gateway: give --service-account NAME, --token-file FILE or --client-certificate"
            )
        return _read_token(file)


def find(location: Location, environment: Mapping[str, str], credentials: Credentials) -> Gateway:
    """Finds the gateway and obtains the credentials.

    Raises:
        GatewayUnknown: nothing holds the gateway's address.
        GatewayFailed: a file cannot be used, or the credentials cannot be had.
    """
    try:
        if location.server is not None:
            return _at_server(location.server, location, credentials)
        if (path := _gateway_file(location, environment)) is not None:
            return _from_file(path, location.kubectl, credentials)
        return _in_cluster(location, credentials)
    except FileNotFoundError as error:
        raise GatewayUnknown(f"{error.filename} does not exist: is the operator running? (try `make demo`)") from None
    except PermissionError as error:
        raise GatewayFailed(
            f"{error.filename} cannot be read: only the user who runs the operator may. Give --service-account NAME, "
            "one that may get dataflows/data, or --client-certificate"
        ) from None
    except OSError as error:
        raise GatewayFailed(f"{error.filename or 'the gateway'} cannot be read: {error.strerror or error}") from None


def _at_server(address: str, location: Location, credentials: Credentials) -> Gateway:
    authority = location.authority.read_bytes() if location.authority else None
    if credentials.client_certificate:
        if authority is None:
            raise GatewayFailed("--client-certificate needs TLS: give --certificate-authority FILE")
        return Gateway(address, None, authority, location.kubectl.client_certificate())
    _check_confidential(address, authority)
    return Gateway(address, credentials.token(location.kubectl, None), authority)


def _in_cluster(location: Location, credentials: Credentials) -> Gateway:
    kubectl, namespace = location.kubectl, location.operator_namespace
    if credentials.client_certificate:
        leader = find_leader(kubectl, namespace, CERTIFICATE_PORT)
        return Gateway("", None, leader.authority, kubectl.client_certificate(), leader)
    leader = find_leader(kubectl, namespace, TOKEN_PORT)
    return Gateway("", credentials.token(kubectl, None), leader.authority, leader=leader)


def _gateway_file(location: Location, environment: Mapping[str, str]) -> Path | None:
    """None: none is named, and none is beside the kubeconfig."""
    if named := location.file or environment.get(FILE_VARIABLE):
        return Path(named)
    if location.kubectl.context is not None:
        return None
    kubeconfig = location.kubectl.kubeconfig or environment.get("KUBECONFIG", "").split(os.pathsep)[0]
    beside = Path(kubeconfig).parent / FILE_NAME
    return beside if kubeconfig and beside.exists() else None


def _from_file(path: Path, kubectl: Kubectl, credentials: Credentials) -> Gateway:
    try:
        raw = json.loads(path.read_bytes()[:_MAX_FILE_BYTES])
        authority = Path(raw["caFile"]).read_bytes() if "caFile" in raw else None
        if credentials.client_certificate:
            return _by_certificate(raw, authority, kubectl)
        address = str(raw["address"])
        token = credentials.token(kubectl, Path(raw["tokenFile"]))
    except (ValueError, KeyError, TypeError):
        raise GatewayFailed(f"{path} is not a file that an operator writes: restart the operator") from None
    _check_confidential(address, authority)
    return Gateway(address, token, authority)


def _by_certificate(raw: dict[str, Any], authority: bytes | None, kubectl: Kubectl) -> Gateway:
    if authority is None or "certificateAddress" not in raw:
        raise GatewayFailed(
            "the gateway takes no client certificates: it was started without --gateway-client-ca. "
            "Give --service-account NAME"
        )
    return Gateway(str(raw["certificateAddress"]), None, authority, kubectl.client_certificate())


def _check_confidential(address: str, authority: bytes | None) -> None:
    """Raises GatewayFailed where others could read a token on its way."""
    try:
        loopback = ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:  # a name may resolve to any address
        loopback = False
    if authority is None and not loopback:
        raise GatewayFailed(
            f"{address} is not on loopback, so the token needs TLS: give --certificate-authority, or a caFile"
        )


def _read_token(file: Path) -> str:
    token = file.read_bytes()[:_MAX_FILE_BYTES].strip()
    if not token or not token.isascii() or not token.decode().isprintable():
        raise GatewayFailed(f"{file} holds no token")
    return token.decode()

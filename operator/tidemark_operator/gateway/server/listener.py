"""The gateway's addresses and certificates: loopback without TLS, or any address with it.

--gateway-tls DIR              tls.crt, tls.key and ca.crt, as in a Secret of type kubernetes.io/tls
--gateway-service NAME         otherwise a certificate of the operator's own authority for that Service
--gateway-client-ca cluster    clients may show a certificate of the cluster's authority instead of a token
--gateway-client-ca FILE       clients may show a certificate of this authority instead of a token
--gateway-http-port PORT       queries, subscribes and rows over HTTP (http_server.py), with the same certificate

    address               TLS without client certificates      every call has a token
    certificateAddress    TLS with client certificates         the handshake refuses other authorities' certificates

gRPC for Python requests client certificates always or never, so there are two ports. Files are read for each new
connection, so a renewed certificate needs no restart.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tidemark_operator.certificates.peers import Peers
from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.client import Kube
from tidemark_protocol.tls.folder import Material

LOG = logging.getLogger(__name__)
LOOPBACK = "127.0.0.1"
CLUSTER = "cluster"


@dataclass(frozen=True)
class TlsFolder:
    """A folder with a certificate, its key, and the authority that clients must trust."""

    folder: Path

    def material(self, _: Peers) -> Material:
        """The files' present content. Raises OperatorError where one cannot be read."""
        return Material(self._read("tls.crt"), self._read("tls.key"), self._read("ca.crt"))

    def _read(self, name: str) -> bytes:
        file = self.folder / name
        try:
            return file.read_bytes()
        except OSError:
            raise OperatorError(f"--gateway-tls {self.folder}: {file} cannot be read") from None


@dataclass(frozen=True)
class IssuedCertificate:
    """A certificate of the operator's own authority for these DNS names; its key exists in memory only."""

    hosts: tuple[str, ...]

    def material(self, peers: Peers) -> Material:
        """Raises OperatorError."""
        return peers.serving(self.hosts)


def _credentials(material: Callable[[], Material], clients: Callable[[], bytes] | None = None) -> Any:
    """Server credentials, read for each connection. `clients`: the authorities (PEM) of client certificates; None: no
    client certificates. Raises OperatorError."""

    def configuration() -> Any:
        own = material()
        return grpc.ssl_server_certificate_configuration([(own.key, own.certificate)], clients() if clients else None)

    def renewed() -> Any:
        try:
            return configuration()
        except OperatorError as error:
            LOG.error("the gateway keeps its previous certificate, the new one cannot be read: %s", error)
            return None

    return grpc.dynamic_ssl_server_credentials(configuration(), renewed, clients is not None)


@dataclass(frozen=True)
class ClientAuthority:
    """The authority of client certificates (a PEM file; None: the cluster's), and the port for them."""

    authority: Path | None
    port: int = 0

    @staticmethod
    def named(text: str, port: int) -> ClientAuthority:
        return ClientAuthority(None if text == CLUSTER else Path(text).absolute(), port)

    async def trusted(self, kube: Kube) -> Callable[[], bytes]:
        """A function that reads the authority's certificates (PEM). Raises OperatorError, ApiError."""
        if self.authority is None:
            published = await kube.client_authority()
            if not published:
                raise OperatorError(
                    "--gateway-client-ca cluster: the API server accepts no client certificates (ConfigMap "
                    "kube-system/extension-apiserver-authentication has no client-ca-file). Use a file, or tokens"
                )
            known = _checked(published.encode(), "the authority that the API server publishes")
            return lambda: known
        file = self.authority
        _file(file)
        return lambda: _file(file)


def _file(path: Path) -> bytes:
    try:
        return _checked(path.read_bytes(), str(path))
    except OSError:
        raise OperatorError(f"--gateway-client-ca {path} cannot be read") from None


def _checked(pem: bytes, where: str) -> bytes:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise OperatorError(f"--gateway-client-ca: {where} is not the certificate of an authority in PEM") from None
    return pem


@dataclass(frozen=True)
class ListenerConfig:
    """Where and how the gateway listens. `port` 0: any free port. Beyond loopback `tls` is required: calls carry
    tokens.

    Raises:
        OperatorError: on creation, where TLS is missing.
    """

    host: str = LOOPBACK
    port: int = 0
    tls: TlsFolder | IssuedCertificate | None = None
    clients: ClientAuthority | None = None
    http_port: int | None = None
    """The port of HTTP (http_server.py); 0: any free port; None: no HTTP."""

    def __post_init__(self) -> None:
        if self.tls is None and not _is_loopback(self.host):
            raise OperatorError(
                f"the gateway would receive tokens on {self.host} in clear text: give --gateway-tls, or a "
                "--gateway-host "
                f"on loopback such as {LOOPBACK}"
            )
        if self.tls is None and self.clients is not None:
            raise OperatorError("--gateway-client-ca needs --gateway-tls: clients show certificates over TLS only")

    def __str__(self) -> str:
        return self._address(self.port)

    def authorities(self, peers: Peers) -> bytes | None:
        """The authorities (PEM) that clients must trust; None: no TLS. Raises OperatorError."""
        return self.tls.material(peers).authorities if self.tls else None

    def add_to(self, server: Any, peers: Peers) -> str:
        """Bind the port for calls with tokens; return its address. Raises OperatorError where it is taken."""
        tls = self.tls
        return self._add(server, self.port, _credentials(lambda: tls.material(peers)) if tls else None)

    def material(self, peers: Peers) -> Callable[[], Material] | None:
        """The present certificate and key; None: no TLS."""
        tls = self.tls
        return None if tls is None else lambda: tls.material(peers)

    async def add_clients_to(self, server: Any, kube: Kube, peers: Peers) -> str | None:
        """Bind the port for client certificates, if there is to be one; return its address. Raises OperatorError."""
        tls = self.tls
        if tls is None or self.clients is None:
            return None
        trusted = await self.clients.trusted(kube)
        return self._add(server, self.clients.port, _credentials(lambda: tls.material(peers), trusted))

    def _add(self, server: Any, port: int, credentials: Any) -> str:
        try:
            if credentials is None:
                return self._address(server.add_insecure_port(self._address(port)))
            return self._address(server.add_secure_port(self._address(port), credentials))
        except RuntimeError:
            raise OperatorError(
                f"the gateway cannot listen on {self._address(port)}: free the port, or choose another one"
            ) from None

    def _address(self, port: int) -> str:
        """The host with the port, as gRPC takes it."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name may resolve to any address
        return False

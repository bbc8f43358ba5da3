"""Where the gateway listens: on loopback, or anywhere with a certificate; and where client certificates open it.

--gateway-tls DIR              tls.crt, tls.key and ca.crt, as a Secret of type kubernetes.io/tls has them
--gateway-service NAME         else, a certificate of the operator's own authority for that Service
--gateway-client-ca cluster    whom the cluster's own authority signed may show that instead of a token
--gateway-client-ca FILE       whom this one signed

    address               TLS, the client shows nothing      every call has a token
    certificateAddress    TLS, the client shows its own      what it is not signed for does not get as far as a call

gRPC for Python asks for client certificates always or never, so there are two ports. Files are read anew with each
connection: who renews them need not tell us.
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
class Tls:
    """A folder with a certificate, its key, and the authority that clients are to trust."""

    folder: Path

    def material(self, _: Peers) -> Material:
        """What is there now; raises OperatorError."""
        return Material(self._read("tls.crt"), self._read("tls.key"), self._read("ca.crt"))

    def _read(self, name: str) -> bytes:
        file = self.folder / name
        try:
            return file.read_bytes()
        except OSError:
            raise OperatorError(f"--gateway-tls {self.folder}: {file} cannot be read") from None


@dataclass(frozen=True)
class Issued:
    """A certificate of the operator's own authority, for these names; its key is in memory alone."""

    hosts: tuple[str, ...]

    def material(self, peers: Peers) -> Material:
        """Raises OperatorError."""
        return peers.serving(self.hosts)


def _credentials(material: Callable[[], Material], clients: Callable[[], bytes] | None = None) -> Any:
    """Asked for with each connection. `clients`: who must have signed what clients show. Raises OperatorError."""

    def configuration() -> Any:
        own = material()
        return grpc.ssl_server_certificate_configuration([(own.key, own.certificate)], clients() if clients else None)

    def renewed() -> Any:
        try:
            return configuration()
        except OperatorError as error:
            LOG.error("the gateway goes on with the certificates that it had: %s", error)
            return None

    return grpc.dynamic_ssl_server_credentials(configuration(), renewed, clients is not None)


@dataclass(frozen=True)
class Clients:
    """Whose client certificates open the gateway: those that `authority` signed, None: the cluster's own."""

    authority: Path | None
    port: int = 0

    @staticmethod
    def named(text: str, port: int) -> Clients:
        return Clients(None if text == CLUSTER else Path(text).absolute(), port)

    async def trusted(self, kube: Kube) -> Callable[[], bytes]:
        """The authority's certificates, read anew where they are in a file. Raises OperatorError, ApiError."""
        if self.authority is None:
            published = await kube.client_authority()
            if not published:
                raise OperatorError(
                    "--gateway-client-ca cluster: the API server takes no client certificates (ConfigMap "
                    "kube-system/extension-apiserver-authentication has no client-ca-file)"
                )
            known = _checked(published.encode(), "what the API server publishes")
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
        raise OperatorError(f"--gateway-client-ca: {where} has no certificate of an authority, as PEM") from None
    return pem


@dataclass(frozen=True)
class Listening:
    """`port` 0: any free one. Tokens must not be read on their way, so beyond loopback `tls` is needed."""

    host: str = LOOPBACK
    port: int = 0
    tls: Tls | Issued | None = None
    clients: Clients | None = None

    def __post_init__(self) -> None:
        if self.tls is None and not _is_loopback(self.host):
            raise OperatorError(
                f"the gateway would take tokens on {self.host} in clear text: give --gateway-tls, or a --gateway-host "
                f"on loopback such as {LOOPBACK}"
            )
        if self.tls is None and self.clients is not None:
            raise OperatorError("--gateway-client-ca needs --gateway-tls: certificates are shown over TLS alone")

    def __str__(self) -> str:
        return self._at(self.port)

    def authorities(self, peers: Peers) -> bytes | None:
        """Whom clients are to trust, as PEM; None: it listens without a certificate. Raises OperatorError."""
        return self.tls.material(peers).authorities if self.tls else None

    def add_to(self, server: Any, peers: Peers) -> str:
        """The address it listens on; raises OperatorError where that is taken."""
        tls = self.tls
        return self._add(server, self.port, _credentials(lambda: tls.material(peers)) if tls else None)

    async def add_clients_to(self, server: Any, kube: Kube, peers: Peers) -> str | None:
        """The address for those who show a certificate, if there is one; raises OperatorError."""
        tls = self.tls
        if tls is None or self.clients is None:
            return None
        trusted = await self.clients.trusted(kube)
        return self._add(server, self.clients.port, _credentials(lambda: tls.material(peers), trusted))

    def _add(self, server: Any, port: int, credentials: Any) -> str:
        try:
            if credentials is None:
                return self._at(server.add_insecure_port(self._at(port)))
            return self._at(server.add_secure_port(self._at(port), credentials))
        except RuntimeError:
            raise OperatorError(f"the gateway cannot listen on {self._at(port)}: choose another port") from None

    def _at(self, port: int) -> str:
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name may mean anything
        return False

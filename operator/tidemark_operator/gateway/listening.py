"""Where the gateway listens: on loopback, or anywhere with a certificate.

--gateway-tls DIR      tls.crt, tls.key and ca.crt, as a Secret of type kubernetes.io/tls has them
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tidemark_operator.errors import OperatorError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Tls:
    """A folder with a certificate, its key, and the authority that clients are to trust."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    def credentials(self) -> Any:
        """Raises OperatorError where a file cannot be read."""
        try:
            pair = ((self.folder / "tls.key").read_bytes(), (self.folder / "tls.crt").read_bytes())
            self.authority.read_bytes()  # clients are told of it
        except OSError as error:
            raise OperatorError(f"--gateway-tls {self.folder}: {error.filename} cannot be read") from None
        return grpc.ssl_server_credentials([pair])


@dataclass(frozen=True)
class Listening:
    """`port` 0: any free one. Tokens must not be read on their way, so beyond loopback `tls` is needed."""

    host: str = LOOPBACK
    port: int = 0
    tls: Tls | None = None

    def __post_init__(self) -> None:
        if self.tls is None and not _is_loopback(self.host):
            raise OperatorError(
                f"the gateway would take tokens on {self.host} in clear text: give --gateway-tls, or a --gateway-host "
                f"on loopback such as {LOOPBACK}"
            )

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def add_to(self, server: Any) -> str:
        """The address it listens on; raises RuntimeError where that is taken."""
        if self.tls is None:
            port = server.add_insecure_port(str(self))
        else:
            port = server.add_secure_port(str(self), self.tls.credentials())
        return str(Listening(self.host, port, self.tls))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name may mean anything
        return False

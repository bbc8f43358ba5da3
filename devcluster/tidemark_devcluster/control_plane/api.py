"""Asks the API server whether it is ready, with nothing but the standard library."""

import http.client
import socket
import ssl
from pathlib import Path

REQUEST_SECONDS = 5.0
DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


def answers(port: int, certificate: Path, token: str, path: str, host: str = "127.0.0.1") -> bool:
    """Whether a GET of `path` succeeds; any failure, also of the connection or the certificate, is a no."""
    try:
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection(host, port, timeout=REQUEST_SECONDS, context=context)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().status == http.client.OK
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of loopback now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT is no obstacle
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A loopback port that is free at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

"""The way to the operator's gateway, and who we are to it.

The operator writes a small file when it listens, and the command line looks for it here, in this order:

    --gateway-file FILE    $TIDEMARK_GATEWAY_FILE    gateway.json beside the kubeconfig in use

    {"address": "127.0.0.1:40123", "tokenFile": "/.../gateway.token", "caFile": "/.../ca.crt"}

The token that we show is, in this order:

    --service-account NAME    the API server makes one for it, of ten minutes and for the gateway alone
    --token-file FILE         such a token that is there already: in a pod, a projected one
    tokenFile                 the operator's own, which only its user can read

It goes into the call's metadata, nowhere else.
"""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tidemark_cli.errors import GatewayFailed, GatewayUnknown
from tidemark_protocol.frames import GRPC_OPTIONS
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayStub

FILE_NAME = "gateway.json"
AUDIENCE, TOKEN_LIFE, TOKEN_SECONDS = "tidemark-gateway", "10m", 30.0
_LARGEST_FILE = 64 * 1024


@dataclass(frozen=True)
class Gateway:
    """Where the gateway listens, and who we are to it."""

    address: str
    token: str
    authority: bytes | None = None
    """Who signed the gateway's certificate; None: it listens on loopback."""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),)


@dataclass(frozen=True)
class Credentials:
    """Whose token to show, if not the operator's own."""

    service_account: str | None = None
    namespace: str = "default"
    token_file: Path | None = None

    def token(self, own: Path) -> str:
        """Raises OSError, GatewayFailed."""
        if self.service_account is not None:
            return _token_of(self.service_account, self.namespace)
        return (self.token_file or own).read_text().strip()


def find(given: str | None, environment: dict[str, str], credentials: Credentials) -> Gateway:
    """The gateway that the user means; raises GatewayUnknown, GatewayFailed."""
    path = _file(given, environment)
    try:
        raw = json.loads(path.read_bytes()[:_LARGEST_FILE])
        token = credentials.token(Path(raw["tokenFile"]))
        authority = Path(raw["caFile"]).read_bytes() if "caFile" in raw else None
        return Gateway(_safe(str(raw["address"]), authority), token, authority)
    except FileNotFoundError as error:
        raise GatewayUnknown(f"{error.filename} does not exist: is the operator running? (try `make demo`)") from None
    except PermissionError as error:
        raise GatewayFailed(
            f"{error.filename} cannot be read: only the user who runs the operator may. Give --service-account NAME, "
            "one that may get dataflows/data"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise GatewayFailed(f"{path} is not what an operator writes: restart the operator") from None


def _safe(address: str, authority: bytes | None) -> str:
    """Raises GatewayFailed where the token could be read on its way."""
    try:
        loopback = ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:  # a name may mean anything
        loopback = False
    if authority is None and not loopback:
        raise GatewayFailed(f"{address} is not on loopback, so the token needs TLS: name the authority as caFile")
    return address


def _token_of(service_account: str, namespace: str) -> str:
    """TokenRequest, by kubectl, which knows how to log in."""
    command = ["kubectl", "create", "token", service_account, "--namespace", namespace]
    command += ["--audience", AUDIENCE, "--duration", TOKEN_LIFE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOKEN_SECONDS, check=False)
    except FileNotFoundError:
        raise GatewayFailed("--service-account needs kubectl, which is not on the PATH") from None
    except subprocess.TimeoutExpired:
        raise GatewayFailed(f"the API server made no token within {TOKEN_SECONDS:.0f} s") from None
    if done.returncode:
        raise GatewayFailed(f"no token for ServiceAccount {service_account}: {done.stderr.strip()}")
    return done.stdout.strip()


def _file(given: str | None, environment: dict[str, str]) -> Path:
    if named := given or environment.get("TIDEMARK_GATEWAY_FILE"):
        return Path(named)
    kubeconfig = environment.get("KUBECONFIG", "").split(os.pathsep)[0]
    if not kubeconfig:
        raise GatewayUnknown("set KUBECONFIG as `make demo` printed it, or give --gateway-file")
    return Path(kubeconfig).parent / FILE_NAME


@contextmanager
def connected(gateway: Gateway) -> Iterator[GatewayStub]:
    """A stub for calls; what they raise becomes a GatewayFailed."""
    with _channel(gateway) as channel:
        try:
            yield GatewayStub(channel)  # type: ignore[no-untyped-call]
        except grpc.RpcError as error:
            raise _failure(gateway, error) from None


def _channel(gateway: Gateway) -> grpc.Channel:
    if gateway.authority is None:
        return grpc.insecure_channel(gateway.address, options=GRPC_OPTIONS)
    credentials = grpc.ssl_channel_credentials(gateway.authority)
    return grpc.secure_channel(gateway.address, credentials, options=GRPC_OPTIONS)


def _failure(gateway: Gateway, error: Any) -> GatewayFailed:
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return GatewayFailed(f"no gateway answers at {gateway.address}: is the operator running?")
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return GatewayFailed("the gateway does not know this token: it has expired, or the operator was restarted")
    return GatewayFailed(error.details() or str(error.code()))

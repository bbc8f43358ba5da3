"""The way to the operator's gateway.

The operator writes a small file when it listens, and the command line looks for it here, in this order:

    --gateway-file FILE    $TIDEMARK_GATEWAY_FILE    gateway.json beside the kubeconfig in use

    {"address": "127.0.0.1:40123", "tokenFile": "/.../gateway.token"}

The token itself is in a file of its own that only its owner can read; it goes into the call's metadata, nowhere else.
"""

from __future__ import annotations

import json
import os
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
_LARGEST_FILE = 64 * 1024


@dataclass(frozen=True)
class Gateway:
    """Where the gateway listens, and who we are to it."""

    address: str
    token: str

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),)


def find(given: str | None, environment: dict[str, str]) -> Gateway:
    """The gateway that the user means; raises GatewayUnknown, GatewayFailed."""
    path = _file(given, environment)
    try:
        raw = json.loads(path.read_bytes()[:_LARGEST_FILE])
        token = Path(raw["tokenFile"]).read_text().strip()
        return Gateway(str(raw["address"]), token)
    except FileNotFoundError as error:
        raise GatewayUnknown(f"{error.filename} does not exist: is the operator running? (try `make demo`)") from None
    except PermissionError as error:
        raise GatewayFailed(f"{error.filename} cannot be read: only the user who runs the operator may") from None
    except (ValueError, KeyError, TypeError):
        raise GatewayFailed(f"{path} is not what an operator writes: restart the operator") from None


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
    with grpc.insecure_channel(gateway.address, options=GRPC_OPTIONS) as channel:
        try:
            yield GatewayStub(channel)  # type: ignore[no-untyped-call]
        except grpc.RpcError as error:
            raise _failure(gateway, error) from None


def _failure(gateway: Gateway, error: Any) -> GatewayFailed:
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return GatewayFailed(f"no gateway answers at {gateway.address}: is the operator running?")
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return GatewayFailed("the gateway does not know this token: the operator was restarted elsewhere?")
    return GatewayFailed(error.details() or str(error.code()))

"""Calls to the gateway over gRPC, and the messages of their failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import grpc

from tidemark.errors import Error, of_code
from tidemark.gateway import port_forward
from tidemark.gateway.discovery import Gateway
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayStub

CALL_SECONDS = 30
"""The deadline of calls that compute nothing: frontiers, why, explain."""
KEEPALIVE = (
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)
"""Pings detect a gateway that vanished without closing the connection, also while a subscribe waits for changes; one
that comes back is called again within seconds.
gRPC servers close connections that ping more often than every five minutes, unless they are configured otherwise."""


@contextmanager
def connected(gateway: Gateway) -> Iterator[GatewayStub]:
    """A stub for calls; forwards a port for the block where the gateway is a pod.

    Raises:
        Error: a call in the block failed.
    """
    with reached(gateway) as at, _channel(at) as channel, call_errors(gateway):
        yield GatewayStub(channel)  # type: ignore[no-untyped-call]


@contextmanager
def reached(gateway: Gateway) -> Iterator[Gateway]:
    """The gateway with an address that can be called, for as long as the block lasts. One that has an address keeps it:
    the port of its pod is forwarded already."""
    to = None if gateway.address else gateway.leader
    with port_forward.forwarded(to) if to else nullcontext(gateway.address) as address:
        yield replace(gateway, address=address)


@contextmanager
def call_errors(gateway: Gateway) -> Iterator[None]:
    """Raise failures of calls as the client's errors."""
    try:
        yield
    except grpc.RpcError as error:
        raise _failure(gateway, error) from None


def _channel(gateway: Gateway) -> grpc.Channel:
    """Messages have gRPC's default limit of 4 MiB, which is also the gateway's."""
    if gateway.authority is None:
        return grpc.insecure_channel(gateway.address, options=KEEPALIVE)
    return grpc.secure_channel(gateway.address, _credentials(gateway), options=_options(gateway))


def async_channel(gateway: Gateway) -> grpc.aio.Channel:
    """A channel like that of `connected`, for the running event loop; the caller closes it."""
    if gateway.authority is None:
        return grpc.aio.insecure_channel(gateway.address, options=KEEPALIVE)
    return grpc.aio.secure_channel(gateway.address, _credentials(gateway), options=_options(gateway))


def _credentials(gateway: Gateway) -> grpc.ChannelCredentials:
    shown = gateway.certificate
    return grpc.ssl_channel_credentials(gateway.authority, *((shown.key, shown.certificate) if shown else (None, None)))


def _options(gateway: Gateway) -> list[tuple[str, object]]:
    host = [("grpc.ssl_target_name_override", gateway.leader.host)] if gateway.leader else []
    return [*KEEPALIVE, *host]


def _failure(gateway: Gateway, error: Any) -> Error:
    code, metadata = error.code(), dict(iter(error.trailing_metadata() or ()))
    return of_code(_text(gateway, code, error.details()), code, str(metadata.get("tidemark-sqlstate", "")))


def _text(gateway: Gateway, code: grpc.StatusCode, details: str | None) -> str:
    match code, gateway.certificate is not None:
        case grpc.StatusCode.UNAVAILABLE, True:
            return (
                f"no gateway answers at {gateway.name}, or it does not take the client certificate: it takes "
                "those of the cluster's own users, signed by the authority that --gateway-client-ca names"
            )
        case grpc.StatusCode.UNAVAILABLE, False:
            return f"no gateway answers at {gateway.name}: is the operator running?"
        case grpc.StatusCode.UNAUTHENTICATED, False:
            return "the gateway does not know this token: it has expired, or the operator was restarted"
        case grpc.StatusCode.DEADLINE_EXCEEDED, _:
            return f"not answered in time: {details}"
        case grpc.StatusCode.UNIMPLEMENTED, _:
            return f"{gateway.name} has no such call ({details}): operator and client are of different versions"
    return details or str(code)

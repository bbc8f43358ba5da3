"""Calls to the gateway over gRPC, and the messages of their failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import grpc

from tidemark_cli.errors import GatewayFailed
from tidemark_cli.gateway import port_forward
from tidemark_cli.gateway.discovery import Gateway
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayStub

CALL_SECONDS = 30
"""The deadline of calls that compute nothing: frontiers, why, explain."""
KEEPALIVE = (
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
)
"""Pings detect a gateway that vanished without closing the connection, also while a subscribe waits for changes.
gRPC servers close connections that ping more often than every five minutes, unless they are configured otherwise."""


@contextmanager
def connected(gateway: Gateway) -> Iterator[GatewayStub]:
    """A stub for calls; forwards a port for the block where the gateway is a pod.

    Raises:
        GatewayFailed: a call in the block failed.
    """
    reached = port_forward.forwarded(gateway.leader) if gateway.leader else nullcontext(gateway.address)
    with reached as address, _channel(replace(gateway, address=address)) as channel:
        try:
            yield GatewayStub(channel)  # type: ignore[no-untyped-call]
        except grpc.RpcError as error:
            failure = _failure(gateway, error)
            failure.code = error.code()
            raise failure from None


def _channel(gateway: Gateway) -> grpc.Channel:
    """Messages have gRPC's default limit of 4 MiB, which is also the gateway's."""
    if gateway.authority is None:
        return grpc.insecure_channel(gateway.address, options=KEEPALIVE)
    shown = gateway.certificate
    pair = (shown.key, shown.certificate) if shown else (None, None)
    credentials = grpc.ssl_channel_credentials(gateway.authority, *pair)
    host = [("grpc.ssl_target_name_override", gateway.leader.host)] if gateway.leader else []
    return grpc.secure_channel(gateway.address, credentials, options=[*KEEPALIVE, *host])


def _failure(gateway: Gateway, error: Any) -> GatewayFailed:
    code, details = error.code(), error.details()
    match code, gateway.certificate is not None:
        case grpc.StatusCode.UNAVAILABLE, True:
            return GatewayFailed(
                f"no gateway answers at {gateway.name}, or it does not take the client certificate: it takes "
                "those of the cluster's own users, signed by the authority that --gateway-client-ca names"
            )
        case grpc.StatusCode.UNAVAILABLE, False:
            return GatewayFailed(f"no gateway answers at {gateway.name}: is the operator running?")
        case grpc.StatusCode.UNAUTHENTICATED, False:
            return GatewayFailed("the gateway does not know this token: it has expired, or the operator was restarted")
        case grpc.StatusCode.DEADLINE_EXCEEDED, _:
            return GatewayFailed(f"not answered in time: {details}")
    return GatewayFailed(details or str(code))

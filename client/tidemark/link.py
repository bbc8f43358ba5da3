"""The way to the gateway of one connection: found once, and anew where it is lost.

find ──► a port is forwarded, where the gateway is a pod ──► a channel ──► calls
                                         lost, or the token is unknown: forget, and begin again
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import grpc

from tidemark.errors import InterfaceError
from tidemark.gateway.channel import connected, reached
from tidemark.gateway.discovery import Gateway
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayStub

LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED)
"""The gateway moved with its leader, or began anew; a token has expired. Reads are asked again, once."""


class Link:
    """The way to the gateway, for one thread at a time. `find`: as tidemark.gateway.discovery.find."""

    def __init__(self, find: Callable[[], Gateway]) -> None:
        self._find, self._open = find, ExitStack()
        self._gateway: Gateway | None = find()
        self._reached: Gateway | None = None
        self._stub: GatewayStub | None = None
        self._closed = False

    def gateway(self) -> Gateway:
        """It has an address. Raises GatewayUnknown, GatewayFailed; InterfaceError where the link is closed."""
        if self._closed:
            raise InterfaceError("the connection is closed")
        if self._reached is None:
            self._reached = self._open.enter_context(reached(self._gateway or self._find()))
        return self._reached

    def stub(self) -> GatewayStub:
        """The stub for calls. Raises as `gateway`."""
        gateway = self.gateway()
        if self._stub is None:
            self._stub = self._open.enter_context(connected(gateway))
        return self._stub

    def forget(self) -> None:
        """End the channel and the forwarding: the next call finds the gateway anew."""
        self._gateway = self._reached = self._stub = None
        self._open.close()

    def close(self) -> None:
        self._closed = True
        self.forget()

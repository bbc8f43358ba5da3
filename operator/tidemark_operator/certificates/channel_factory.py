"""gRPC channels to replicas and the planner, with TLS or without.

    PlainChannels    a unix socket in a folder that only this user can enter
    TlsChannels      shows the operator's certificate, and accepts the certificate of one peer only

A channel keeps the certificate that it was opened with, so a renewed certificate needs a new channel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from tidemark_operator.certificates.diagnosis import diagnose
from tidemark_protocol.tls.folder import Material
from tidemark_protocol.tls.identities import Identity

Options = Sequence[tuple[str, Any]]
Own = Callable[[], Material]


class ChannelFactory(Protocol):
    """Opens channels to one peer; equal factories open equal channels."""

    def material(self) -> Material | None:
        """The certificate that the next channel shows; None: no TLS."""

    def channel(self, address: str, options: Options) -> grpc.aio.Channel:
        """A channel to the address, which connects on its first call."""

    async def explain(self, address: str) -> str:
        """The fault of the peer's certificate; empty: the certificate does not explain a failed connection."""


@dataclass(frozen=True)
class PlainChannels:
    """Channels without TLS."""

    def material(self) -> Material | None:
        return None

    def channel(self, address: str, options: Options) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(address, options=list(options))

    async def explain(self, address: str) -> str:
        return ""


@dataclass(frozen=True)
class TlsChannels:
    """Channels with mutual TLS. `own`: the operator's present certificate and trusted authorities."""

    peer: Identity
    own: Own

    def material(self) -> Material | None:
        return self.own()

    def channel(self, address: str, options: Options) -> grpc.aio.Channel:
        own = self.own()
        credentials = grpc.ssl_channel_credentials(own.authorities, own.key, own.certificate)
        return grpc.aio.secure_channel(
            address, credentials, options=[*options, ("grpc.ssl_target_name_override", self.peer.host)]
        )

    async def explain(self, address: str) -> str:
        return await diagnose(address, self.peer, self.own().authorities)


PLAIN_CHANNELS = PlainChannels()

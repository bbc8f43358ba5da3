"""Channels to replicas and the planner, with a certificate or without.

    Plain     a unix socket in a folder that this user alone can enter
    Mutual    shows the operator's certificate, and takes nobody but the one peer for an answer

A channel keeps the certificate that it was opened with; so a new connection is a new channel.
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
    """How one peer is reached. Equal ones reach it alike."""

    def material(self) -> Material | None:
        """What the next channel will show."""

    def channel(self, address: str, options: Options) -> grpc.aio.Channel: ...

    async def explain(self, address: str) -> str:
        """Why no connection comes about, as far as certificates tell; empty: they are not to blame."""


@dataclass(frozen=True)
class PlainChannels:
    def material(self) -> Material | None:
        return None

    def channel(self, address: str, options: Options) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(address, options=list(options))

    async def explain(self, address: str) -> str:
        return ""


@dataclass(frozen=True)
class TlsChannels:
    """`own`: the operator's certificate as it is now, and whom it trusts."""

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

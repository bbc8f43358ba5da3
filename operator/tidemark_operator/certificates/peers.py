"""What the rest of the operator asks about certificates, whether there are any or not."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Protocol

from tidemark_operator.certificates.channel_factory import PLAIN_CHANNELS, ChannelFactory
from tidemark_operator.errors import OperatorError
from tidemark_operator.resources.manifest.meta import Meta
from tidemark_protocol.tls.folder import Material
from tidemark_protocol.tls.identities import Identity


class Peers(Protocol):
    """Those that the operator calls: replicas, and the planner."""

    def dialer(self, peer: Identity) -> ChannelFactory:
        """How it is reached."""

    def serving(self, hosts: Sequence[str]) -> Material:
        """What the gateway shows by these names, and who signed it; raises OperatorError where there are none."""

    async def prepare(self, replica: Meta) -> None:
        """The ComputeReplica's processes have what they need in order to be called. Raises OperatorError."""

    def is_prepared(self, replica: Meta) -> bool:
        """Since it was retained last."""

    def refusal(self, replica: Meta) -> str:
        """Why it cannot be prepared until somebody does something about it; empty: there is no such reason."""

    def retain(self, replicas: Collection[Meta]) -> None:
        """No others are there any more."""

    async def run(self) -> None:
        """Renews what is due, until cancelled."""


class SocketPeers:
    """Peers behind unix sockets that nobody else can reach: they show nothing."""

    def dialer(self, peer: Identity) -> ChannelFactory:
        return PLAIN_CHANNELS

    def serving(self, hosts: Sequence[str]) -> Material:
        raise OperatorError("the gateway has no certificate: give --gateway-tls, or --mutual-tls")

    async def prepare(self, replica: Meta) -> None:
        return

    def is_prepared(self, replica: Meta) -> bool:
        return True

    def refusal(self, replica: Meta) -> str:
        return ""

    def retain(self, replicas: Collection[Meta]) -> None:
        return

    async def run(self) -> None:
        await asyncio.Event().wait()

"""The interface of certificates to the rest of the operator, and its implementation without TLS."""

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
    """Certificates and channels of the operator's peers: replicas, the planner, and the gateway's clients."""

    def dialer(self, peer: Identity) -> ChannelFactory:
        """Opens channels to the peer."""

    def serving(self, hosts: Sequence[str]) -> Material:
        """The gateway's certificate for these DNS names. Raises OperatorError where the operator has no authority."""

    async def prepare(self, replica: Meta) -> None:
        """Store the certificate of a ComputeReplica's processes.

        Raises:
            CertificateRefused: an object that the operator did not create has its name.
            OperatorError: the store fails.
        """

    def is_prepared(self, replica: Meta) -> bool:
        """Whether `prepare` succeeded for it."""

    def refusal(self, replica: Meta) -> str:
        """The reason why an administrator must act before it can be prepared; empty: no such reason."""

    def retain(self, replicas: Collection[Meta]) -> None:
        """Forget all other replicas: they do not exist any more."""

    async def run(self) -> None:
        """Renew certificates that are due, until cancelled."""


class SocketPeers:
    """Peers behind unix sockets that only this user can open: no certificates."""

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

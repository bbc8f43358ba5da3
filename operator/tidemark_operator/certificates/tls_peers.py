"""Certificates and channels of peers with mutual TLS."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tidemark_operator.certificates.certificate_rotation import CertificateRotation
from tidemark_operator.certificates.channel_factory import ChannelFactory, TlsChannels
from tidemark_operator.certificates.names import PLANNER as PLANNERS
from tidemark_operator.certificates.names import replica_secret
from tidemark_operator.certificates.store import SecretLocation, Store
from tidemark_operator.errors import CertificateRefused
from tidemark_operator.kube.startup_retry import retry_at_startup
from tidemark_operator.resources.manifest.meta import Meta
from tidemark_protocol.tls.folder import Material
from tidemark_protocol.tls.identities import PLANNER, Identity, replica_identity

Forget = Callable[[Collection[SecretLocation]], None]


class TlsPeers:
    """Implements `Peers`. `forget`: called with the locations still needed, for a store that must remove the others."""

    def __init__(self, keeper: CertificateRotation, forget: Forget = lambda _: None) -> None:
        self._keeper, self._forget = keeper, forget
        self._prepared: set[str] = set()
        self._refused: dict[str, str] = {}
        self._retained: set[str] | None = None

    @classmethod
    async def start(cls, store: Store, forget: Forget = lambda _: None) -> TlsPeers:
        """Load or create the authority, and store the planner's certificate. Transient failures are retried.

        Raises:
            OperatorError: the store fails for longer.
        """
        return cls(await retry_at_startup("certificates", lambda: _start_rotation(store)), forget)

    def dialer(self, peer: Identity) -> ChannelFactory:
        return TlsChannels(peer, self._keeper.material)

    def serving(self, hosts: Sequence[str]) -> Material:
        return self._keeper.serving(hosts)

    async def prepare(self, replica: Meta) -> None:
        try:
            await self._keeper.hold(location_of(replica), identity_of(replica))
        except CertificateRefused as refused:
            self._refused[replica.uid] = str(refused)
            raise
        self._prepared.add(replica.uid)
        self._refused.pop(replica.uid, None)

    def is_prepared(self, replica: Meta) -> bool:
        return replica.uid in self._prepared

    def refusal(self, replica: Meta) -> str:
        return self._refused.get(replica.uid, "")

    def retain(self, replicas: Collection[Meta]) -> None:
        uids = {str(replica.uid) for replica in replicas}
        if uids != self._retained:
            places = [location_of(replica) for replica in replicas]
            self._prepared &= uids
            self._refused = {uid: why for uid, why in self._refused.items() if uid in uids}
            self._keeper.retain({place.key for place in places})
            self._forget(places)
            self._retained = uids

    async def run(self) -> None:
        await self._keeper.run()


async def _start_rotation(store: Store) -> CertificateRotation:
    keeper = CertificateRotation(store)
    await keeper.start()
    await keeper.hold(SecretLocation(PLANNERS), PLANNER)
    return keeper


def location_of(replica: Meta) -> SecretLocation:
    return SecretLocation(replica_secret(replica.name), replica.namespace, replica)


def identity_of(replica: Meta) -> Identity:
    return replica_identity(replica.namespace, replica.name, replica.uid)

"""Sees to it that everybody has a certificate, in time, and that the authority hands over.

    hold(place)   what it has ─► renewed(...) ─► created or replaced; somebody else was quicker: look again
    look()        the authority's next step, if all that are held have had its present one for long enough
                  then everybody again

Nothing is remembered that is not also written down, but what was written, and when: so a new operator waits anew
before the authority's next step, and never takes one too early.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tidemark_operator.certificates import authority as authorities
from tidemark_operator.certificates import certificate_state as leaves
from tidemark_operator.certificates.authority import Authority, Step
from tidemark_operator.certificates.certificate_state import HolderFiles
from tidemark_operator.certificates.issue import new_authority
from tidemark_operator.certificates.names import AUTHORITY
from tidemark_operator.certificates.store import SecretLocation, Store, StoredFiles, WriteConflict
from tidemark_operator.errors import CertificateRefused, OperatorError
from tidemark_protocol.tls.folder import Material
from tidemark_protocol.tls.identities import GATEWAY, OPERATOR, Identity

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 60.0
SPREAD_MS = 60 * 60 * 1000
"""So long a new bundle takes to everybody who has it mounted, at most: the kubelet takes a minute or two."""
VERIFY_MS = 10 * 60 * 1000
"""What is kept is read again so often, though nothing is due: somebody may have deleted it."""
TRIES = 5
_AUTHORITY = SecretLocation(AUTHORITY, mounted=False)


@dataclass(frozen=True)
class _Written:
    """The authority as it is kept."""

    authority: Authority
    kept: StoredFiles


@dataclass
class _Holder:
    """`leaf` None: it does not have what it should yet."""

    place: SecretLocation
    identity: Identity
    leaf: HolderFiles | None = None
    verified_ms: int = 0


class CertificateRotation:
    """`start` first; `look` every minute (`run` does); `hold` whenever a holder is about to start."""

    def __init__(self, store: Store, clock: Callable[[], int] | None = None) -> None:
        self._store, self._clock = store, clock or _now_ms
        self._written: _Written | None = None
        self._own: dict[Identity, HolderFiles] = {}
        self._holders: dict[tuple[str, str], _Holder] = {}
        self._changed_ms = 0

    @property
    def step(self) -> Step:
        return self._known.authority.step

    def material(self) -> Material:
        """The operator's own certificate, and whom it trusts: for the next connection. It is in memory alone."""
        return self._in_memory(OPERATOR)

    def serving(self, hosts: Sequence[str]) -> Material:
        """The gateway's, which is called by these names; likewise, and always by the same names."""
        return self._in_memory(GATEWAY, hosts)

    def _in_memory(self, identity: Identity, hosts: Sequence[str] = ()) -> Material:
        own = self._own.get(identity)
        own = leaves.renewed(own, identity, self._known.authority, self._clock(), hosts) or own
        assert own is not None, "what is not renewed is there"
        self._own[identity] = own
        return own.material

    async def start(self) -> None:
        """The authority is loaded, or made by one of several that start at once. Raises OperatorError."""
        self._changed_ms = self._clock()
        for _ in range(TRIES):
            kept = await self._store.load(_AUTHORITY)
            if kept is not None:
                self._written = _Written(authorities.from_files(kept.bag), kept)
                return
            try:
                made = authorities.first(self._clock(), new_authority)
                await self._store.create(_AUTHORITY, authorities.to_files(made))
                LOG.info("a new authority for certificates was made")
            except WriteConflict:
                continue
        raise OperatorError("the authority for certificates cannot be made: others make it and remove it again")

    async def hold(self, place: SecretLocation, identity: Identity) -> None:
        """From now on the holder has a certificate there; on return it has one that is right. Raises OperatorError, and
        CertificateRefused where what is there is somebody else's."""
        holder = self._holders.get(place.key)
        if holder is None or holder.identity != identity:
            holder = self._holders[place.key] = _Holder(place, identity)
        now = self._clock()
        fine = holder.leaf is not None and leaves.renewed(holder.leaf, identity, self._known.authority, now) is None
        if not fine or now - holder.verified_ms >= VERIFY_MS:
            await self._ensure(holder)

    def retain(self, keys: Collection[tuple[str, str]]) -> None:
        """In namespaces, all others need none any more; what they had goes with their owners."""
        for namespace, name in self._holders.keys() - set(keys):
            if namespace:
                del self._holders[namespace, name]

    async def run(self) -> None:
        """Until cancelled. What cannot be done now is tried again a minute later."""
        while True:
            try:
                await self.look()
            except OperatorError as error:
                LOG.warning("certificates: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Everything that is due."""
        await self._reload()
        await self._ensure_all()
        await self._advance()
        await self._ensure_all()

    async def _reload(self) -> None:
        """The authority as it is kept: another operator may have gone on with it."""
        kept = await self._store.load(_AUTHORITY)
        if kept is None:
            # whoever deleted it wants a new one; those who trust the old one get to know it as fast as they can
            changed = self._changed_ms
            await self.start()
            self._changed_ms = max(changed, self._clock())
        elif kept.version != self._known.kept.version:
            self._written = _Written(authorities.from_files(kept.bag), kept)
            self._changed_ms = self._clock()

    @property
    def _known(self) -> _Written:
        assert self._written is not None, "start() comes first"
        return self._written

    async def _advance(self) -> None:
        authority, kept = self._known.authority, self._known.kept
        now = self._clock()
        since = max(authority.since_ms, self._changed_ms)
        spread = all(holder.leaf is not None for holder in self._holders.values()) and now - since >= SPREAD_MS
        following = authorities.advance(authority, now, spread, new_authority)
        if following is None:
            return
        try:
            await self._store.replace(_AUTHORITY, authorities.to_files(following), kept)
        except WriteConflict:
            LOG.info("another operator went on with the authority for certificates")
        else:
            LOG.info("the authority for certificates: %s", following.step.value)
        await self._reload()

    async def _ensure_all(self) -> None:
        for holder in list(self._holders.values()):
            try:
                await self.hold(holder.place, holder.identity)
            except OperatorError as error:
                LOG.warning("the certificate of %s: %s", holder.identity, error)

    async def _ensure(self, holder: _Holder) -> None:
        """What is kept becomes what it should be; a lost race is somebody's success, and is looked at."""
        holder.leaf = None
        for _ in range(TRIES):
            try:
                kept = await self._store.load(holder.place)
            except CertificateRefused:
                # it is none of ours, so nobody waits for it
                self._holders.pop(holder.place.key, None)
                raise
            leaf = leaves.from_files(kept.bag) if kept else None
            better = leaves.renewed(leaf, holder.identity, self._known.authority, self._clock())
            if better is None:
                holder.leaf, holder.verified_ms = leaf, self._clock()
                return
            try:
                if kept is None:
                    await self._store.create(holder.place, leaves.to_files(better))
                else:
                    await self._store.replace(holder.place, leaves.to_files(better), kept)
                self._changed_ms = self._clock()
                LOG.info("%s has a new certificate, or new authorities", holder.identity)
            except WriteConflict:
                continue
        raise OperatorError(f"the certificate of {holder.identity} is changed by others again and again")


def _now_ms() -> int:
    return int(time.time() * 1000)

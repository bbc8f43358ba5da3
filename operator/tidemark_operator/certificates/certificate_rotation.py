"""Keeps the certificates of all holders up to date, and replaces the authority in time.

    hold(location)   load ─► renewed(...) ─► create or replace; after a write conflict: load again
    look()           every holder; the authority's next step, once all holders had the present one for SPREAD_MS;
                     every holder again

Only the time of the last write is in memory. A new operator therefore waits SPREAD_MS again before the authority's next
step, and never takes one too early.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tidemark_operator.certificates import authority as authorities
from tidemark_operator.certificates import certificate_state as leaves
from tidemark_operator.certificates.authority import Authority
from tidemark_operator.certificates.issue import new_authority
from tidemark_operator.certificates.names import AUTHORITY
from tidemark_operator.certificates.store import SecretLocation, Store, StoredFiles, WriteConflict
from tidemark_operator.errors import CertificateRefused, OperatorError
from tidemark_protocol.tls.folder import Material
from tidemark_protocol.tls.identities import GATEWAY, OPERATOR, Identity

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 60.0
SPREAD_MS = 60 * 60 * 1000
"""The longest time until every pod reads a new bundle; the kubelet takes a minute or two."""
VERIFY_MS = 10 * 60 * 1000
"""Stored files are read again this often even if nothing is due: they may have been deleted."""
TRIES = 5
_AUTHORITY = SecretLocation(AUTHORITY, mounted=False)


@dataclass(frozen=True)
class _Written:
    """The authority and its stored form."""

    authority: Authority
    kept: StoredFiles


@dataclass
class _Holder:
    """A holder of stored files. `leaf` None: they are missing or out of date."""

    place: SecretLocation
    identity: Identity
    leaf: Material | None = None
    verified_ms: int = 0


class CertificateRotation:
    """Call `start` first, `hold` before a holder starts, and `run`, which calls `look` every minute."""

    def __init__(self, store: Store, clock: Callable[[], int] | None = None) -> None:
        self._store, self._clock = store, clock or _now_ms
        self._written: _Written | None = None
        self._own: dict[Identity, Material] = {}
        self._holders: dict[tuple[str, str], _Holder] = {}
        self._changed_ms = 0

    def material(self) -> Material:
        """The operator's own certificate and trusted authorities, for the next connection; in memory only."""
        return self._in_memory(OPERATOR)

    def serving(self, hosts: Sequence[str]) -> Material:
        """The gateway's certificate for these DNS names, which must always be the same; in memory only."""
        return self._in_memory(GATEWAY, hosts)

    def _in_memory(self, identity: Identity, hosts: Sequence[str] = ()) -> Material:
        own = self._own.get(identity)
        own = leaves.renewed(own, identity, self._current.authority, self._clock(), hosts) or own
        assert own is not None, "renewed() returns None for existing files only"
        self._own[identity] = own
        return own

    async def start(self) -> None:
        """Load the authority, or create it. One of several operators that start at once creates it.

        Raises:
            OperatorError: the store fails, or others create and delete it again and again.
            CertificateRefused: the stored authority cannot be read.
        """
        self._changed_ms = self._clock()
        for _ in range(TRIES):
            kept = await self._store.load(_AUTHORITY)
            if kept is not None:
                self._written = _Written(authorities.from_files(kept.bag), kept)
                return
            try:
                made = authorities.steady_authority(self._clock(), new_authority)
                await self._store.write(_AUTHORITY, authorities.to_files(made), None)
                LOG.info("created a new authority for certificates")
            except WriteConflict:
                continue
        raise OperatorError(
            "the authority for certificates cannot be created: other writers create and delete it. Is another operator "
            "running?"
        )

    async def hold(self, place: SecretLocation, identity: Identity) -> None:
        """Keep the holder's files up to date from now on; on return they are.

        Raises:
            CertificateRefused: the location has an object that the operator did not create.
            OperatorError: the store fails.
        """
        holder = self._holders.get(place.key)
        if holder is None or holder.identity != identity:
            holder = self._holders[place.key] = _Holder(place, identity)
        now = self._clock()
        fine = holder.leaf is not None and leaves.renewed(holder.leaf, identity, self._current.authority, now) is None
        if not fine or now - holder.verified_ms >= VERIFY_MS:
            await self._ensure(holder)

    def retain(self, keys: Collection[tuple[str, str]]) -> None:
        """Forget all other holders in namespaces; Kubernetes collects their Secrets with the owners."""
        for namespace, name in self._holders.keys() - set(keys):
            if namespace:
                del self._holders[namespace, name]

    async def run(self) -> None:
        """Call `look` every LOOK_SECONDS, until cancelled; failures are logged and retried."""
        while True:
            try:
                await self.look()
            except OperatorError as error:
                LOG.warning("certificates cannot be renewed now: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Do what is due. Raises OperatorError."""
        await self._reload()
        await self._ensure_all()
        await self._advance()
        await self._ensure_all()

    async def _reload(self) -> None:
        """Load the authority again: another operator may have taken its next step."""
        kept = await self._store.load(_AUTHORITY)
        if kept is None:
            # deleted by an administrator, who wants a new one; holders of the old one receive it at once
            changed = self._changed_ms
            await self.start()
            self._changed_ms = max(changed, self._clock())
        elif kept.version != self._current.kept.version:
            self._written = _Written(authorities.from_files(kept.bag), kept)
            self._changed_ms = self._clock()

    @property
    def _current(self) -> _Written:
        """The content of the Secret when it was last written or read; `start()` must be called first."""
        assert self._written is not None, "start() must be called first"
        return self._written

    async def _advance(self) -> None:
        authority, kept = self._current.authority, self._current.kept
        now = self._clock()
        since = max(authority.since_ms, self._changed_ms)
        spread = all(holder.leaf is not None for holder in self._holders.values()) and now - since >= SPREAD_MS
        following = authorities.advance(authority, now, spread, new_authority)
        if following is None:
            return
        try:
            await self._store.write(_AUTHORITY, authorities.to_files(following), kept)
        except WriteConflict:
            LOG.info("another operator took the next step of the authority for certificates")
        else:
            LOG.info("the authority for certificates is in step %s", following.step.value)
        await self._reload()

    async def _ensure_all(self) -> None:
        for holder in list(self._holders.values()):
            try:
                await self.hold(holder.place, holder.identity)
            except OperatorError as error:
                LOG.warning("the certificate of %s cannot be renewed now: %s", holder.identity, error)

    async def _ensure(self, holder: _Holder) -> None:
        """Bring the stored files up to date; after a write conflict, load and decide again."""
        holder.leaf = None
        for _ in range(TRIES):
            try:
                kept = await self._store.load(holder.place)
            except CertificateRefused:
                # not the operator's, so the authority's next step does not wait for it
                self._holders.pop(holder.place.key, None)
                raise
            leaf = leaves.from_files(kept.bag) if kept else None
            better = leaves.renewed(leaf, holder.identity, self._current.authority, self._clock())
            if better is None:
                holder.leaf, holder.verified_ms = leaf, self._clock()
                return
            try:
                await self._store.write(holder.place, leaves.to_files(better), kept)
                self._changed_ms = self._clock()
                LOG.info("wrote a new certificate, or new authorities, for %s", holder.identity)
            except WriteConflict:
                continue
        raise OperatorError(
            f"the certificate of {holder.identity} cannot be written: other writers change it. Is another "
            "operator running?"
        )


def _now_ms() -> int:
    return int(time.time() * 1000)

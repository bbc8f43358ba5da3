"""Stored plans: one immutable ControllerRevision each, owned by the object that the plan is of.

    data: {"format": 1, "encoding": "zlib+base64", "plan": "eJzt..."}      canonical bytes, compressed

A plan is stored before it is sent to replicas, and the object's status names the active one. An operator may therefore
die between any two steps: the next one finds the stored plan and does not plan again.

The leader lists all revisions once, before it stores any. Afterwards only the leader stores them, so it knows without a
request which owners have none. A replaced operator may still have had a write under way: then the name is taken, the
creation is a Conflict, and the owner's revisions are listed.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tidemark_operator.errors import Rejected, RevisionUnreadable
from tidemark_operator.kube.client import REVISIONS, Body, Conflict, Kube
from tidemark_operator.resources.manifest.meta import GROUP, Meta
from tidemark_protocol.errors import ProtocolError
from tidemark_protocol.plan import codec

FORMAT = 1
MAX_STORED_BYTES = 900 * 1024
MAX_PLAN_BYTES = codec.MAX_PLAN_BYTES
OWNER_LABEL = f"{GROUP}/owner-uid"
T = TypeVar("T")


@dataclass(frozen=True)
class RevisionOwner:
    """The object that owns a revision, and with which it is collected."""

    api_version: str
    kind: str
    meta: Meta

    def reference(self) -> Body:
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.meta.name,
            "uid": self.meta.uid,
            "controller": True,
        }


def revision_name(owner: Meta, number: int) -> str:
    """The revision's name: deterministic, so that a creation repeated after a crash finds the first one."""
    return f"{owner.name}-{owner.uid[:8]}-r{number}"


def build_revision(owner: RevisionOwner, number: int, value: Any) -> Body:
    """The ControllerRevision that holds `value`; raises Rejected where it exceeds MAX_STORED_BYTES."""
    data = base64.b64encode(zlib.compress(codec.encode(value), 9)).decode()
    if len(data) > MAX_STORED_BYTES:
        raise Rejected(
            "PlanTooLarge",
            f"the compressed plan has {len(data)} bytes, the limit is {MAX_STORED_BYTES}: split the {owner.kind}",
        )
    return {
        "metadata": {
            "name": revision_name(owner.meta, number),
            "namespace": owner.meta.namespace,
            "labels": {OWNER_LABEL: owner.meta.uid},
            "ownerReferences": [owner.reference()],
        },
        "revision": number,
        "data": {"format": FORMAT, "encoding": "zlib+base64", "plan": data},
    }


def parse_revision(body: Body, expected: type[T]) -> T:
    """The value that `build_revision` stored; raises RevisionUnreadable."""
    name = body["metadata"]["name"]
    data = body.get("data") or {}
    if data.get("format") != FORMAT:
        raise RevisionUnreadable(f"revision {name} has format {data.get('format')!r}; this version reads {FORMAT}")
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.b64decode(data["plan"], validate=True), MAX_PLAN_BYTES + 1)
        return codec.decode(raw, expected)
    except (KeyError, binascii.Error, zlib.error, ProtocolError) as error:
        raise RevisionUnreadable(f"revision {name} cannot be read: {error}") from None


class Revisions:
    """Revisions at the API server."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._listed: dict[tuple[str, str], Body] = {}
        self._listed_of: dict[str, list[Body]] = {}
        self._owners: set[str] | None = None
        """Uids of owners that may have revisions; None: nothing was listed yet."""

    @asynccontextmanager
    async def listed(self) -> AsyncIterator[None]:
        """List all revisions; within the block, `load` needs no request for them, since revisions never change."""
        bodies = await self._kube.list(REVISIONS, OWNER_LABEL)
        self._listed = {(body["metadata"]["namespace"], body["metadata"]["name"]): body for body in bodies}
        for body in bodies:
            self._listed_of.setdefault(body["metadata"]["labels"][OWNER_LABEL], []).append(body)
        self._owners = set(self._listed_of)
        try:
            yield
        finally:
            self._listed, self._listed_of = {}, {}

    async def load(self, namespace: str, name: str, expected: type[T]) -> T | None:
        """The value of a revision; None: it does not exist. Raises RevisionUnreadable."""
        body = self._listed.get((namespace, name)) or await self._kube.get(REVISIONS, namespace, name)
        if body is None:
            return None
        self._note_owner((body["metadata"].get("labels") or {}).get(OWNER_LABEL, ""))
        return parse_revision(body, expected)

    async def all(self, owner: Meta, expected: type[T]) -> dict[int, T]:
        """The values of all revisions that the owner had when they were listed, or has now, by their numbers. Raises
        RevisionUnreadable."""
        bodies = self._listed_of.get(owner.uid) or await self.of(owner)
        return {int(body["revision"]): parse_revision(body, expected) for body in bodies}

    async def of(self, owner: Meta) -> list[Body]:
        """All revisions of the owner, the oldest first."""
        if self._owners is not None and owner.uid not in self._owners:
            return []
        bodies = await self._kube.list(REVISIONS, f"{OWNER_LABEL}={owner.uid}", owner.namespace)
        return sorted(bodies, key=lambda body: int(body["revision"]))

    async def store(self, owner: RevisionOwner, number: int, value: Any) -> str:
        """Stores it and returns its name. One of that number that is there already must hold the same."""
        body = build_revision(owner, number, value)
        name: str = body["metadata"]["name"]
        self._note_owner(owner.meta.uid)  # from now on, also where no answer comes
        try:
            await self._kube.create(REVISIONS, owner.meta.namespace, body)
        except Conflict:
            there = await self._kube.get(REVISIONS, owner.meta.namespace, name)
            if there is None or there.get("data") != body["data"]:
                raise
        return name

    def forget(self, uid: str) -> None:
        """Forget an owner that was deleted with its revisions."""
        if self._owners is not None:
            self._owners.discard(uid)

    def _note_owner(self, uid: str) -> None:
        if self._owners is not None:
            self._owners.add(uid)

    async def prune(self, owner: Meta, keep: Collection[str]) -> None:
        """Delete all revisions but these and the newest one, after which the next is numbered."""
        for body in (await self.of(owner))[:-1]:
            metadata = body["metadata"]
            if metadata["name"] not in keep:
                await self._kube.delete(REVISIONS, owner.namespace, metadata["name"], metadata["uid"])

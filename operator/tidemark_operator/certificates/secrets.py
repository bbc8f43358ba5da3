"""Stores certificates as Secrets. Each write replaces the whole Secret at a resource version: of two writers one wins.

    metadata.labels              compute.tidemark.dev/certificate: authority | leaf      the operator touches no others
    metadata.ownerReferences     the ComputeReplica; for the operator's own Secrets the Lease
    type                         kubernetes.io/tls for Secrets that pods mount, Opaque for the authority

The chart creates the Lease, so uninstalling it removes the operator's Secrets too.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from tidemark_operator.certificates.names import MANAGED_LABEL, SECRET_TYPE
from tidemark_operator.certificates.store import Files, SecretLocation, StoredFiles, WriteConflict
from tidemark_operator.errors import CertificateRefused
from tidemark_operator.kube.client import LEASES, REPLICAS, SECRETS, ApiError, Body, Conflict, Kube
from tidemark_operator.kube.leadership import LEASE
from tidemark_operator.kube.revisions import RevisionOwner

OPAQUE = "Opaque"


class SecretStore:
    """Implements `Store`. `namespace`: the operator's own."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube, self._namespace = kube, namespace

    async def load(self, place: SecretLocation) -> StoredFiles | None:
        body = await self._kube.get(SECRETS, self._namespace_of(place), place.name)
        return None if body is None else parse_secret(place, body)

    async def write(self, place: SecretLocation, bag: Files, kept: StoredFiles | None) -> None:
        body = build_secret(place, bag, await self._owner(place), kept.version if kept else "")
        try:
            if kept is None:
                await self._kube.create(SECRETS, self._namespace_of(place), body)
            else:
                await self._kube.replace(SECRETS, self._namespace_of(place), place.name, body)
        except ApiError as error:
            if not isinstance(error, Conflict) and (kept is None or error.status != 404):
                raise
            raise WriteConflict(str(error)) from None

    async def _owner(self, place: SecretLocation) -> Body | None:
        """The present owner reference of a Secret; None: the Lease does not exist."""
        if place.owner is not None:
            return RevisionOwner(REPLICAS.api_version, REPLICAS.kind, place.owner).reference()
        lease = await self._kube.get(LEASES, self._namespace, LEASE)
        if lease is None:
            return None
        uid = lease["metadata"]["uid"]
        return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "name": LEASE, "uid": uid}

    def _namespace_of(self, place: SecretLocation) -> str:
        """The namespace of a Secret; the operator's own unless its place names one."""
        return place.namespace or self._namespace


def build_secret(place: SecretLocation, bag: Files, owner: Body | None, version: str = "") -> Body:
    """The Secret's body. `version`: the resource version that it replaces; empty: it is new."""
    metadata: dict[str, Any] = {"name": place.name, "labels": {MANAGED_LABEL: "leaf" if place.mounted else "authority"}}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    if version:
        metadata["resourceVersion"] = version
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": SECRET_TYPE if place.mounted else OPAQUE,
        "data": {name: base64.b64encode(content).decode() for name, content in bag.items()},
    }


def parse_secret(place: SecretLocation, body: Body) -> StoredFiles:
    """The files of a Secret; raises CertificateRefused where the operator did not create it."""
    metadata = body["metadata"]
    expected = SECRET_TYPE if place.mounted else OPAQUE
    if MANAGED_LABEL not in (metadata.get("labels") or {}) or body.get("type") != expected:
        where = f"{metadata.get('namespace', place.namespace)}/{place.name}"
        raise CertificateRefused(
            f"Secret {where} was not created by the operator, which needs this name for certificates: delete "
            "the Secret, "
            "or rename the object that it belongs to"
        )
    try:
        bag = {name: base64.b64decode(value, validate=True) for name, value in (body.get("data") or {}).items()}
    except binascii.Error:
        bag = {}
    return StoredFiles(bag, metadata["resourceVersion"])

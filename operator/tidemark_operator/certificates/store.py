"""The interface of certificate stores: named sets of files, each replaced as a whole, with optimistic locking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tidemark_operator.errors import OperatorError
from tidemark_operator.resources.manifest.meta import Meta

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class SecretLocation:
    """Where a set of files is stored.

    `namespace` empty: the operator's own. `owner`: the ComputeReplica with which it is collected. `mounted`: a pod
    mounts it as files.
    """

    name: str
    namespace: str = ""
    owner: Meta | None = None
    mounted: bool = True

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


@dataclass(frozen=True)
class StoredFiles:
    """A stored set of files. `version`: of this content, for `Store.write`."""

    bag: Files
    version: str


class WriteConflict(OperatorError):
    """Another writer changed the location since it was loaded."""


class Store(Protocol):
    """Every method raises OperatorError where the store fails, and CertificateRefused for a location that has something
    the operator did not create."""

    async def load(self, place: SecretLocation) -> StoredFiles | None:
        """The files; None: nothing is stored there."""

    async def write(self, place: SecretLocation, bag: Files, kept: StoredFiles | None) -> None:
        """Store new files, or replace the files; raises WriteConflict unless `kept` is what is stored, None for
        nothing."""

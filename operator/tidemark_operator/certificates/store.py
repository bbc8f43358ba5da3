"""Where certificates are kept, whoever keeps them: bags of bytes, each changed as a whole by one writer at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tidemark_operator.errors import OperatorError
from tidemark_operator.resources.manifest.meta import Meta

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class SecretLocation:
    """`namespace` empty: the operator's own. `owner`: the ComputeReplica that it belongs to, and goes with. `mounted`:
    it is a certificate that a pod has as files."""

    name: str
    namespace: str = ""
    owner: Meta | None = None
    mounted: bool = True

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


@dataclass(frozen=True)
class StoredFiles:
    """`version`: of this very content, for who replaces it."""

    bag: Files
    version: str


class WriteConflict(OperatorError):
    """Somebody else wrote there since it was looked at."""


class Store(Protocol):
    """Each raises OperatorError where it cannot tell, and CertificateRefused where the place is somebody else's."""

    async def load(self, place: SecretLocation) -> StoredFiles | None:
        """None: there is nothing."""

    async def create(self, place: SecretLocation, bag: Files) -> None:
        """Raises Taken if something is there."""

    async def replace(self, place: SecretLocation, bag: Files, kept: StoredFiles) -> None:
        """Raises Taken if `kept` is not what is there."""

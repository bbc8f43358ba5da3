"""A ComputeInstance that is made where there is none: what an installation that should work at once asks for.

Only made, never changed and never removed: from then on it is its users'.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.client import INSTANCES, ApiError, Kube
from tidemark_operator.kube.startup_retry import asked_again


@dataclass(frozen=True)
class DefaultInstance:
    namespace: str
    name: str
    location: str
    secret: str | None = None
    """Of the object store's credentials, in its namespace."""

    @classmethod
    def parse(cls, named: str | None, location: str | None, secret: str | None = None) -> DefaultInstance | None:
        """Of the options, of which the first two go together; raises OperatorError."""
        if named is None and location is None and secret is None:
            return None
        namespace, slash, name = (named or "").partition("/")
        if not (namespace and slash and name and location):
            raise OperatorError("--default-instance NAMESPACE/NAME and --default-location LOCATION go together")
        return cls(namespace, name, location, secret)

    async def ensure(self, kube: Kube) -> None:
        """Raises OperatorError where the API server takes no such instance."""
        named = f"--default-instance {self.namespace}/{self.name}"
        try:
            await asked_again(named, lambda: self._make(kube))
        except ApiError as error:
            raise OperatorError(f"{named} cannot be made: {error}") from None

    async def _make(self, kube: Kube) -> None:
        if await kube.get(INSTANCES, self.namespace, self.name) is not None:
            return
        metadata = {"name": self.name, "namespace": self.namespace}
        storage = {"location": self.location, **({"secretName": self.secret} if self.secret else {})}
        await kube.create(INSTANCES, self.namespace, {"metadata": metadata, "spec": {"storage": storage}})

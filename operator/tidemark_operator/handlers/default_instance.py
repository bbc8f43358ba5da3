"""Creates a ComputeInstance where there is none, for an installation that works at once.

It is only created, never changed and never removed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.client import INSTANCES, ApiError, Kube
from tidemark_operator.kube.startup_retry import retry_at_startup


@dataclass(frozen=True)
class DefaultInstance:
    namespace: str
    name: str
    location: str
    secret: str | None = None
    """The Secret with the object store's credentials, in the same namespace."""

    @classmethod
    def parse(cls, named: str | None, location: str | None, secret: str | None = None) -> DefaultInstance | None:
        """Parse the command line's options; None if none is given.

        Raises:
            OperatorError: one of --default-instance and --default-location is missing or wrong.
        """
        if named is None and location is None and secret is None:
            return None
        namespace, slash, name = (named or "").partition("/")
        if not (namespace and slash and name and location):
            raise OperatorError("give --default-instance NAMESPACE/NAME and --default-location LOCATION, or neither")
        return cls(namespace, name, location, secret)

    async def ensure(self, kube: Kube) -> None:
        """Creates the instance if it does not exist. Raises OperatorError if the API server refuses it."""
        named = f"--default-instance {self.namespace}/{self.name}"
        try:
            await retry_at_startup(named, lambda: self._make(kube))
        except ApiError as error:
            raise OperatorError(f"{named} cannot be created: {error}") from None

    async def _make(self, kube: Kube) -> None:
        if await kube.get(INSTANCES, self.namespace, self.name) is not None:
            return
        metadata = {"name": self.name, "namespace": self.namespace}
        storage = {"location": self.location, **({"secretName": self.secret} if self.secret else {})}
        await kube.create(INSTANCES, self.namespace, {"metadata": metadata, "spec": {"storage": storage}})

"""Who a token belongs to, and what that user may do: asked of the API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator.kube.client import Kube

AUDIENCE = "tidemark-gateway"


@dataclass(frozen=True)
class User:
    """As the API server knows the user; `extra` and `uid` go with every question about what it may do."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Action:
    """`verb` on objects of `resource`, all of them where `name` is empty; in all namespaces where `namespace` is."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        what = self.resource + (f"/{self.subresource}" if self.subresource else "")
        where = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return " ".join(filter(None, (self.verb, what, self.name, where)))


class Reviews:
    """Questions to the API server; each raises ApiError where it does not answer."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def user(self, token: str) -> User | None:
        """Whose token it is; None for one that is not valid for this audience."""
        spec = {"token": token, "audiences": [AUDIENCE]}
        status = await self._kube.review("authentication.k8s.io", "tokenreviews", "TokenReview", spec)
        if not status.get("authenticated") or AUDIENCE not in status.get("audiences", ()):
            return None
        return _user(status.get("user", {}))

    async def may(self, user: User, action: Action) -> bool:
        attributes = {
            "verb": action.verb,
            "group": action.group,
            "resource": action.resource,
            "subresource": action.subresource,
            "namespace": action.namespace,
            "name": action.name,
        }
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra},
            "resourceAttributes": {key: value for key, value in attributes.items() if value},
        }
        status = await self._kube.review("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", spec)
        return status.get("allowed") is True


def _user(said: Mapping[str, Any]) -> User:
    extra = tuple(sorted((key, tuple(values)) for key, values in (said.get("extra") or {}).items()))
    return User(said.get("username", ""), said.get("uid", ""), tuple(said.get("groups") or ()), extra)

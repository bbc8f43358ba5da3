"""TokenReview and SubjectAccessReview: the user of a token, and the rights of a user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator.kube.client import Kube, Resource

AUDIENCE = "tidemark-gateway"
TOKENS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview")
ACCESS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")


@dataclass(frozen=True)
class User:
    """A user as the API server knows it; every access review sends `uid`, `groups` and `extra` too."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Action:
    """A verb on a resource. `name` empty: all objects; `namespace` empty: all namespaces."""

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
    """Reviews by the API server; every method raises ApiError where it does not answer."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def user(self, token: str) -> User | None:
        """The user of a token; None: the token is invalid, or not for the audience."""
        spec = {"token": token, "audiences": [AUDIENCE]}
        status = await self._kube.review(TOKENS, spec)
        if not status.get("authenticated") or AUDIENCE not in status.get("audiences", ()):
            return None
        return _user(status.get("user", {}))

    async def may(self, user: User, action: Action) -> bool:
        """Whether the user may perform the action."""
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra},
            "resourceAttributes": {key: value for key, value in vars(action).items() if value},
        }
        status = await self._kube.review(ACCESS, spec)
        return status.get("allowed") is True


def service_account(namespace: str, name: str, uid: str) -> User:
    """A ServiceAccount, as the API server knows the holder of its tokens."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", uid, groups)


def _user(status: Mapping[str, Any]) -> User:
    extra = tuple(sorted((key, tuple(values)) for key, values in (status.get("extra") or {}).items()))
    return User(status.get("username", ""), status.get("uid", ""), tuple(status.get("groups") or ()), extra)

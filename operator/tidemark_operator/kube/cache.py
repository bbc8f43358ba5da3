"""The newest known body of every object of ours.

Fed by watches, by full lists (at the start, and now and then: what was deleted while a watch was down is missed by
the watch), and by the answers to our own writes, so that a reconcile never acts on a status older than its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tidemark_operator.kube.client import Body, Resource
from tidemark_operator.resources.manifest.meta import RELEASE

T = TypeVar("T")


@dataclass(frozen=True)
class Key:
    """An object by name: what the work queue holds."""

    resource: Resource
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.path}"


def key_of(resource: Resource, body: Body) -> Key:
    metadata = body["metadata"]
    return Key(resource, metadata["namespace"], metadata["name"])


class Cache:
    def __init__(self) -> None:
        self._bodies: dict[Resource, dict[Key, Body]] = {}
        self._parsed: dict[Key, tuple[Body, Any]] = {}
        self._news: list[set[Key]] = []

    def get(self, key: Key) -> Body | None:
        return self._of(key.resource).get(key)

    def read(self, key: Key, parse: Callable[[Body], T]) -> T | None:
        """What the body says, parsed once for as long as it is the newest; None: there is none. Raises what `parse`
        raises, which is the same for all objects of a kind."""
        body = self.get(key)
        if body is None:
            self._parsed.pop(key, None)
            return None
        known = self._parsed.get(key)
        if known is None or known[0] is not body:
            known = self._parsed[key] = (body, parse(body))
        parsed: T = known[1]
        return parsed

    def put(self, key: Key, body: Body) -> bool:
        """Whether anything changed that a reconcile cares about: everything but status."""
        self._tell(key)
        bodies = self._of(key.resource)
        old = bodies.get(key)
        if old is not None and _version(old) >= _version(body):
            return False
        bodies[key] = _slim(body)
        return old is None or _intent(old) != _intent(body)

    def remove(self, key: Key) -> bool:
        self._tell(key)
        self._parsed.pop(key, None)
        return self._of(key.resource).pop(key, None) is not None

    @contextmanager
    def news(self) -> Iterator[set[Key]]:
        """What is put or removed meanwhile: of that, a list that is under way may be older."""
        news: set[Key] = set()
        self._news.append(news)
        try:
            yield news
        finally:
            self._news = [each for each in self._news if each is not news]

    def replace_all(self, resource: Resource, bodies: Iterable[Body], news: Collection[Key] = ()) -> set[Key]:
        """A full list. The keys that came, went or changed. `news`: of the time since it was asked for; what was
        deleted then does not come back with the list, and what was created does not go."""
        listed = {key_of(resource, body): body for body in bodies}
        known = self._of(resource)
        gone = {key for key in known if key not in listed and key not in news}
        for key in gone:
            self.remove(key)
        came = [(key, body) for key, body in listed.items() if key in known or key not in news]
        return gone | {key for key, body in came if self.put(key, body)}

    def all(self, resource: Resource, namespace: str | None = None) -> list[tuple[Key, Body]]:
        bodies = self._of(resource).items()
        return [(key, body) for key, body in bodies if namespace is None or key.namespace == namespace]

    def keys(self) -> Collection[Key]:
        """Of all kinds."""
        return dict.fromkeys(key for bodies in self._bodies.values() for key in bodies)

    def _tell(self, key: Key) -> None:
        for news in self._news:
            news.add(key)

    def _of(self, resource: Resource) -> dict[Key, Body]:
        return self._bodies.setdefault(resource, {})


def _version(body: Body) -> int:
    """Resource versions grow. (The API server promises so for its own storage from 1.35 on, and etcd always did.)"""
    text = body["metadata"].get("resourceVersion", "")
    return int(text) if text.isdigit() else 0


def _intent(body: Body) -> tuple[object, ...]:
    metadata = body["metadata"]
    fields = ("uid", "generation", "deletionTimestamp", "finalizers", "labels")
    release = (metadata.get("annotations") or {}).get(RELEASE)
    return (*(metadata.get(field) for field in fields), release)


def _slim(body: Body) -> Body:
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    return {**body, "metadata": metadata}

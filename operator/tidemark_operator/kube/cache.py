"""The newest known body of every object of ours.

Watches, full lists and the answers to our own writes feed it, so that a reconcile never acts on a status older than its
own write. Full lists are made at the start and regularly: a watch misses deletions while it is down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tidemark_operator.kube.client import Body, Resource
from tidemark_operator.resources.manifest.meta import RELEASE, REPLAN

T = TypeVar("T")


@dataclass(frozen=True)
class Key:
    """The name of an object; the work queue holds these."""

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


def is_deleted(body: Body | None, uid: str) -> bool:
    """Whether the object of this uid is being deleted, by its cached body."""
    return body is not None and body["metadata"]["uid"] == uid and "deletionTimestamp" in body["metadata"]


class Cache:
    """Bodies by key; only newer resource versions replace a body."""

    def __init__(self) -> None:
        self._bodies: defaultdict[Resource, dict[Key, Body]] = defaultdict(dict)
        self._parsed: dict[Key, tuple[Body, Any]] = {}
        self._change_sets: list[set[Key]] = []

    def get(self, key: Key) -> Body | None:
        return self._bodies[key.resource].get(key)

    def read(self, key: Key, parse: Callable[[Body], T]) -> T | None:
        """The parsed body, parsed once per body; None: there is no object. `parse` must be the same for a kind; its
        errors are raised."""
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
        """Store a body; return whether anything but its status changed."""
        self._note_change(key)
        bodies = self._bodies[key.resource]
        old = bodies.get(key)
        if old is not None and _version(old) >= _version(body):
            return False
        bodies[key] = _slim(body)
        return old is None or _intent(old) != _intent(body)

    def remove(self, key: Key) -> bool:
        """Remove the body; return whether there was one."""
        self._note_change(key)
        self._parsed.pop(key, None)
        return self._bodies[key.resource].pop(key, None) is not None

    @contextmanager
    def changes(self) -> Iterator[set[Key]]:
        """The keys put or removed during the block, in which a list is made: the list may be older than they are."""
        changes: set[Key] = set()
        self._change_sets.append(changes)
        try:
            yield changes
        finally:
            self._change_sets = [each for each in self._change_sets if each is not changes]

    def replace_all(self, resource: Resource, bodies: Iterable[Body], changed: Collection[Key] = ()) -> set[Key]:
        """Replace all bodies of a kind by a full list; return the keys that were added, removed or changed.

        `changed`: keys put or removed since the list was requested; the list neither brings back nor removes them.
        """
        listed = {key_of(resource, body): body for body in bodies}
        known = self._bodies[resource]
        gone = {key for key in known if key not in listed and key not in changed}
        for key in gone:
            self.remove(key)
        came = [(key, body) for key, body in listed.items() if key in known or key not in changed]
        return gone | {key for key, body in came if self.put(key, body)}

    def all(self, resource: Resource, namespace: str | None = None) -> list[tuple[Key, Body]]:
        bodies = self._bodies[resource].items()
        return [(key, body) for key, body in bodies if namespace is None or key.namespace == namespace]

    def keys(self) -> Collection[Key]:
        """The keys of all kinds."""
        return dict.fromkeys(key for bodies in self._bodies.values() for key in bodies)

    def _note_change(self, key: Key) -> None:
        for changes in self._change_sets:
            changes.add(key)


def _version(body: Body) -> int:
    """The resource version as a number, which grows: guaranteed from Kubernetes 1.35 on, and by etcd before."""
    text = body["metadata"].get("resourceVersion", "")
    return int(text) if text.isdigit() else 0


def _intent(body: Body) -> tuple[object, ...]:
    metadata = body["metadata"]
    fields = ("uid", "generation", "deletionTimestamp", "finalizers", "labels")
    annotations = metadata.get("annotations") or {}
    return (*(metadata.get(field) for field in fields), *(annotations.get(name) for name in (RELEASE, REPLAN)))


def _slim(body: Body) -> Body:
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    return {**body, "metadata": metadata}

"""The cache: the newest body of each object, and the changes that start a reconcile."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_operator.kube.cache import Cache, key_of
from tidemark_operator.kube.client import DATAFLOWS


def body(version: int, name: str = "d", **metadata: Any) -> dict[str, Any]:
    identity = {"namespace": "ns", "name": name, "uid": "u", "generation": 1, "resourceVersion": str(version)}
    return {"metadata": {**identity, **metadata}, "spec": {}, "status": {"written": version}}


KEY = key_of(DATAFLOWS, body(1))


def test_an_older_event_does_not_undo_our_own_write() -> None:
    """The answer to a write is newer than what the watch is still delivering."""
    cache = Cache()
    cache.put(KEY, body(7))

    assert not cache.put(KEY, body(6, generation=2))
    newest = cache.get(KEY)
    assert newest is not None
    assert newest["status"] == {"written": 7}


@pytest.mark.parametrize(
    ("metadata", "matters"),
    [
        ({}, False),
        ({"generation": 2}, True),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, True),
        ({"finalizers": ["f"]}, True),
        ({"labels": {"a": "b"}}, True),
        ({"uid": "another"}, True),
        ({"managedFields": ["long"], "annotations": {"a": "b"}}, False),
    ],
)
def test_only_the_spec_matters_not_the_status(metadata: dict[str, Any], matters: bool) -> None:
    """Otherwise each of our writes would cause the next reconcile."""
    cache = Cache()
    cache.put(KEY, body(1))

    assert cache.put(KEY, body(2, **metadata)) is matters
    newest = cache.get(KEY)
    assert newest is not None
    assert "managedFields" not in newest["metadata"]


def test_a_full_list_reports_new_deleted_and_changed_objects() -> None:
    """Also what was deleted while nobody watched."""
    cache = Cache()
    for name in ("same", "changed", "gone"):
        cache.put(key_of(DATAFLOWS, body(1, name)), body(1, name))

    listed = [body(1, "same"), body(2, "changed", generation=2), body(3, "new")]
    news = cache.replace_all(DATAFLOWS, listed)

    assert sorted(key.name for key in news) == ["changed", "gone", "new"]
    assert sorted(key.name for key, _ in cache.all(DATAFLOWS)) == ["changed", "new", "same"]
    assert cache.all(DATAFLOWS, "other") == []


def test_a_list_does_not_undo_the_events_of_a_concurrent_watch() -> None:
    """Deleted objects stay deleted, created ones stay, and changed ones are as new as anybody knows."""
    cache = Cache()
    for name in ("deleted", "changed", "gone"):
        cache.put(key_of(DATAFLOWS, body(1, name)), body(1, name))
    with cache.changes() as news:
        listed = [body(1, "deleted"), body(1, "changed"), body(2, "new")]
        cache.remove(key_of(DATAFLOWS, body(3, "deleted")))
        cache.put(key_of(DATAFLOWS, body(4, "created")), body(4, "created"))
        cache.put(key_of(DATAFLOWS, body(5, "changed")), body(5, "changed", generation=2))
    changed = cache.replace_all(DATAFLOWS, listed, news)

    assert sorted(key.name for key in changed) == ["gone", "new"]
    versions = {key.name: found["metadata"]["resourceVersion"] for key, found in cache.all(DATAFLOWS)}
    assert versions == {"changed": "5", "created": "4", "new": "2"}
    assert sorted(key.name for key in cache.replace_all(DATAFLOWS, [body(6, "deleted")])) == [
        "changed",
        "created",
        "deleted",
        "new",
    ]


def test_a_body_is_parsed_once_and_its_replacement_again() -> None:
    """Whatever of it changed; what is gone says nothing."""
    cache, parsed = Cache(), []

    def parse(body: dict[str, Any]) -> int:
        parsed.append(body)
        version: int = body["status"]["written"]
        return version

    cache.put(KEY, body(1))
    assert [cache.read(KEY, parse) for _ in range(3)] == [1, 1, 1]
    cache.put(KEY, body(2))
    assert [cache.read(KEY, parse) for _ in range(3)] == [2, 2, 2]
    assert len(parsed) == 2
    cache.replace_all(DATAFLOWS, [])
    assert cache.read(KEY, parse) is None
    assert cache._parsed == {}

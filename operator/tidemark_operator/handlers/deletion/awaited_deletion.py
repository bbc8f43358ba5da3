"""A text of the ComputeInstance that deletes a table which others wait for, and of what people are to do."""

from __future__ import annotations

from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.handlers.deletion.tombstones import TableAddress, Tombstone
from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import INSTANCES


def who_deletes(cache: Cache, fleet: Fleet, tombstone: Tombstone, table: TableAddress) -> str:
    """A text as `ComputeInstance lake deletes it: start a replica of the instance`; names the ControllerRevision."""
    return _by_publisher(cache, fleet, tombstone, table) or _by_others(cache, fleet, tombstone, table)


def _by_publisher(cache: Cache, fleet: Fleet, tombstone: Tombstone, table: TableAddress) -> str:
    """Empty where the tombstone names no instance, or that one is gone."""
    name, listed = table.instance, _listed(tombstone)
    if not name or cache.get(Key(INSTANCES, tombstone.namespace, name)) is None:
        return ""
    running = fleet.get(tombstone.namespace, name)
    if running is None:
        return _unread(name, "which deletes it") + listed
    if not running.sees(table.location):
        return (
            f"ComputeInstance {name}, which published it, no longer allows that place: put it back into "
            f"publish.locations, or delete the instance{listed}"
        )
    advice = "" if running.online else ": start a replica of the instance, or delete the instance"
    return f"ComputeInstance {name}, which published it, deletes it{advice}{listed}"


def _by_others(cache: Cache, fleet: Fleet, tombstone: Tombstone, table: TableAddress) -> str:
    listed = _listed(tombstone)
    seeing = [running for running in fleet.of(tombstone.namespace) if running.sees(table.location)]
    if seeing:
        first = min(seeing, key=lambda running: (not running.online, running.name))
        advice = "" if first.online else ": start a replica of the instance"
        return f"ComputeInstance {first.name} deletes it{advice}{listed}"
    names = sorted(key.name for key, _ in cache.all(INSTANCES, tombstone.namespace))
    if unread := next((name for name in names if fleet.get(tombstone.namespace, name) is None), ""):
        return _unread(unread, "which may delete it") + listed
    return (
        f"no ComputeInstance of namespace {tombstone.namespace} keeps or publishes tables there: create one that does, "
        f"with a replica, or delete ControllerRevision {tombstone.name}, and the table stays"
    )


def _unread(name: str, role: str) -> str:
    return f"this version of the operator cannot read ComputeInstance {name}, {role}: mend the instance"


def _listed(tombstone: Tombstone) -> str:
    return f" (ControllerRevision {tombstone.name})"

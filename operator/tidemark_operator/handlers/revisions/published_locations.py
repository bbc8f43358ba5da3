"""Where the views of a Dataflow are published: in their instance's storage, or at a location of the manifest's choice.

    publish: {}                          <storage>/<namespace>/_published/<dataflow>/<view>
    publish: {location: s3://lake/spent}   s3://lake/spent, below a prefix of publish.locations of the ComputeInstance

No table lies in another one or beside shards: its clean-up takes every file below it that it does not know. So a
location overlaps no storage of an instance and no table that another view publishes or is to publish, and no `files`
source of the namespace reads a folder in it. It may lie below such a folder: a source reads what is directly in it. If
two views name overlapping locations, the one that is published there goes on; else the one of the older object does, if
its instance allows it. The replica alone sees what other programs have at a location, and refuses to publish there.

The operator asks again after a refusal: the instance may allow the location later, and another Dataflow may leave it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.errors import Waiting
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS, INSTANCES, Body
from tidemark_operator.planning.revision import published_views
from tidemark_operator.resources.conditions.dataflow import Planning
from tidemark_operator.resources.manifest.data_source import DataSource
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_operator.resources.manifest.instance import storage_location
from tidemark_operator.resources.manifest.locations import is_in, overlaps
from tidemark_protocol.plan.ingestion import FilesSource
from tidemark_protocol.plan.sinks.publish import PublishedView, published_location

LOG = logging.getLogger(__name__)
NOT_ALLOWED, TAKEN = "LocationNotAllowed", "LocationTaken"
NO_CATALOGUE = "NoIcebergCatalogue"


def published_locations(
    context: ReconcileContext, state: DataflowState, dataflow: Dataflow, storage: str
) -> dict[str, PublishedView]:
    """The tables that the views of the Dataflow are published as, by export. `storage`: its instance's. Raises Waiting
    where a location is not allowed, or taken, or an Iceberg table has no catalogue."""
    namespace, name = dataflow.meta.namespace, dataflow.meta.name
    chosen = {export: publish.location for export, publish in dataflow.publishes.items() if publish.location}
    for export, location in chosen.items():
        _check_allowed(context, dataflow, location)
        if other := next((o for o, at in chosen.items() if o != export and overlaps(location, at)), ""):
            raise _location_taken(location, f"view {other} of this Dataflow is published there, too")
        _check_free(context, state, dataflow, location)
    _check_iceberg(context, dataflow)
    return {
        export: publish.view(
            publish.location or published_location(storage, namespace, name, export), f"{namespace}.{name}.{export}"
        )
        for export, publish in dataflow.publishes.items()
    }


def _check_iceberg(context: ReconcileContext, dataflow: Dataflow) -> None:
    named = {publish.iceberg: export for export, publish in dataflow.publishes.items() if publish.iceberg}
    if not named:
        return
    instance = context.instance(dataflow.meta.namespace, dataflow.instance)
    if instance is None or instance.iceberg is None:
        raise Waiting(
            NO_CATALOGUE,
            f"Iceberg table {min(named)} has no catalogue: ComputeInstance {dataflow.instance} names none "
            "(publish.iceberg)",
        )
    if len(named) < sum(bool(publish.iceberg) for publish in dataflow.publishes.values()):
        raise Waiting(TAKEN, "two views of this Dataflow name one Iceberg table: give each one of its own")


def _check_allowed(context: ReconcileContext, dataflow: Dataflow, location: str) -> None:
    prefixes = _prefixes(context, dataflow.meta.namespace, dataflow.instance)
    if prefixes is None:
        why = (
            f"this version of the operator cannot read ComputeInstance {dataflow.instance}, which says what is allowed"
        )
        raise Waiting(NOT_ALLOWED, f"location {location} is not allowed: {why}")
    if not _is_below(location, prefixes):
        allowed = f"allows those below {', '.join(prefixes)}" if prefixes else "allows none"
        refusal = f"location {location} is not allowed: ComputeInstance {dataflow.instance}"
        field = "(publish.locations)"
        raise Waiting(NOT_ALLOWED, f"{refusal} {allowed} {field}", f"{refusal} does not list a place for it {field}")


def _prefixes(context: ReconcileContext, namespace: str, name: str) -> tuple[str, ...] | None:
    """The places that the instance allows, as it was read last. None where it cannot be read, and never was."""
    if (instance := context.instance(namespace, name)) is not None:
        return instance.publish_locations
    if context.cache.get(Key(INSTANCES, namespace, name)) is None:
        return ()
    running = context.running(namespace, name)
    return None if running is None else running.publish_locations


def _is_below(location: str, prefixes: tuple[str, ...]) -> bool:
    return any(location.startswith(f"{prefix}/") for prefix in prefixes)


def _check_free(context: ReconcileContext, state: DataflowState, dataflow: Dataflow, location: str) -> None:
    own_places = _places_of(state)
    for key, body in context.cache.all(INSTANCES):
        try:
            kept = storage_location(body)
        except ResourceError:
            if (running := context.running(key.namespace, key.name)) is None:
                if location in own_places:
                    continue
                why = "may keep its tables there: this version of the operator cannot read it"
                raise _taken_by(key, state, location, why) from None
            kept = running.config.storage_location
        if overlaps(location, kept):
            raise _taken_by(key, state, location, "keeps its tables there")
    for key, at in _published_by_others(context, state.key):
        if overlaps(location, at):
            raise _taken_by(key, state, location, f"publishes {at if at == location else 'a view there'}")
    if location in own_places:
        return
    if reader := next((name for name, at in _drop_folders(context, state.key.namespace) if is_in(at, location)), ""):
        raise _location_taken(location, f"DataSource {reader} reads files there")
    if around := next((at for at in sorted(own_places) if overlaps(location, at)), ""):
        raise _location_taken(location, f"this Dataflow publishes a view at {around}, and no table lies in another one")
    own = context.cache.get(state.key)
    others = [each for each in context.cache.all(DATAFLOWS) if each[0] != state.key]
    age = ("", "", "") if own is None else _age(state.key, own)
    for key, body in others:
        if _age(key, body) < age and any(overlaps(location, wanted) for wanted in _chosen_locations(context, key)):
            raise _taken_by(key, state, location, "is to be published there, and is older")


def _published_by_others(context: ReconcileContext, but: Key) -> Iterator[tuple[Key, str]]:
    registry = context.registry
    for key in registry.known_keys():
        state = None if key == but else registry.dataflow(key)
        yield from ((key, location) for location in (() if state is None else _places_of(state)))


def _places_of(state: DataflowState) -> frozenset[str]:
    """The locations of the tables that its revisions publish, also of one that is being stored."""
    marked = (view.location for mark in state.marks for view in published_views(mark.revision.description))
    return state.planning.places.union(marked)


def _chosen_locations(context: ReconcileContext, key: Key) -> Iterator[str]:
    """The locations that a Dataflow's manifest chooses; none where it or its instance makes it impossible."""
    with suppress(ResourceError):
        if (dataflow := context.cache.read(key, Dataflow.parse)) is not None:
            prefixes = _prefixes(context, key.namespace, dataflow.instance)
            chosen = (publish.location for publish in dataflow.publishes.values() if publish.location)
            yield from (location for location in chosen if prefixes is None or _is_below(location, prefixes))


def _drop_folders(context: ReconcileContext, namespace: str) -> Iterator[tuple[str, str]]:
    """The folders whose files DataSources of the namespace read, with their names."""
    for key, _ in context.cache.all(DATA_SOURCES, namespace):
        with suppress(ResourceError):
            source = context.cache.read(key, DataSource.parse)
            if source is not None and isinstance(source.source, FilesSource):
                yield from ((key.name, table.path) for table in source.source.tables)


def _age(key: Key, body: Body) -> tuple[str, str, str]:
    return body["metadata"].get("creationTimestamp") or "", key.namespace, key.name


def _named(key: Key, seen_from: Key) -> str:
    kind = key.resource.kind
    return f"{kind} {key.name}" if key.namespace == seen_from.namespace else f"a {kind} of another namespace"


def _taken_by(key: Key, state: DataflowState, location: str, doing: str) -> Waiting:
    """The refusal of a location that another object has. One of another namespace is named in the log alone, once."""
    refusal = _location_taken(location, f"{_named(key, state.key)} {doing}")
    if key.namespace != state.key.namespace and state.obstacles.planning != Planning(str(refusal)):
        LOG.info("%s: location %s is taken: %s %s", state.key, location, key, doing)
    return refusal


def _location_taken(location: str, why: str) -> Waiting:
    """The refusal of a location that something else has."""
    return Waiting(TAKEN, f"location {location} is taken: {why}")

"""Where views may be published: below what their instance allows, and never where other tables are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.handlers.deletion.test_published_deletion import publishing
from tests.handlers.harness import UNREADABLE, OperatorHarness
from tests.handlers.revised_dataflows import rev
from tests.resources.manifests import body
from tidemark_operator.catalogue.dataflow_state import DataflowState, RevisionSet
from tidemark_operator.errors import Waiting
from tidemark_operator.handlers.revisions.published_locations import published_locations
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS, INSTANCES
from tidemark_operator.planning.revision import ActiveRevision
from tidemark_operator.resources.conditions.dataflow import Planning
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_protocol.plan.dataflow import MaterializedViewSink

ALLOWED = ["/lake", "s3://lake/sales"]


@pytest.fixture
def harness() -> OperatorHarness:
    made = OperatorHarness()
    made.put({"storage": {"location": "/data"}, "publish": {"locations": ALLOWED}}, None)
    return made


def manifest(location: str, name: str = "d", created: str = "2026-01-02T00:00:00Z", **more: Any) -> dict[str, Any]:
    view = {"instance": "default", "sql": "SELECT 1", "materializedView": {"publish": {"location": location}}}
    return body("Dataflow", view, name, creationTimestamp=created, **more)


def put_object(harness: OperatorHarness, manifest: dict[str, Any], at: str = "") -> DataflowState:
    """The operator knows the object, which publishes at `at` if that is given."""
    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    key = Key(DATAFLOWS, namespace, name)
    harness.cache.put(key, manifest)
    active = elsewhere(publishing(rev(name, 1, view=1)), at) if at else None
    state = DataflowState(key, f"u-{namespace}-{name}", "default", revisions=RevisionSet(active))
    return harness.context.registry.put_dataflow(state)


def elsewhere(mark: ActiveRevision, location: str) -> ActiveRevision:
    (export,) = mark.revision.description.sink_exports
    assert isinstance(export.sink, MaterializedViewSink)
    assert export.sink.publish is not None
    sink = replace(export.sink, publish=replace(export.sink.publish, location=location))
    description = replace(mark.revision.description, sink_exports=(replace(export, sink=sink),))
    return replace(mark, revision=replace(mark.revision, description=description))


def location_or_refusal(harness: OperatorHarness, location: str, at: str = "") -> str:
    """Where view `d` of Dataflow `d` is published, or the reason why it is not."""
    made = manifest(location)
    state = put_object(harness, made, at)
    try:
        (view,) = published_locations(harness.context, state, Dataflow.parse(made), "/data").values()
    except Waiting as waiting:
        return f"{waiting.reason}: {waiting}"
    assert (view.owner, view.chosen) == ("ns.d.d", True)
    return view.location


@pytest.mark.parametrize("location", ["/lake/spent", "/lake/a/b", "s3://lake/sales/spent", "/lake/spent/"])
def test_a_place_below_what_the_instance_allows_is_taken(harness: OperatorHarness, location: str) -> None:
    assert location_or_refusal(harness, location) == location.rstrip("/")


@pytest.mark.parametrize(
    "location", ["/lake", "/lakes/spent", "/other", "s3://lake/sale", "s3://lake/spent", "s3://other/y"]
)
def test_no_other_place_is_allowed(harness: OperatorHarness, location: str) -> None:
    told = location_or_refusal(harness, location)
    assert told.startswith(f"LocationNotAllowed: location {location} is not allowed: ComputeInstance default allows")
    assert "those below /lake, s3://lake/sales (publish.locations)" in told


def test_an_instance_allows_none_unless_it_says_so() -> None:
    harness = OperatorHarness()
    harness.put({"storage": {"location": "/data"}}, None)
    assert "ComputeInstance default allows none" in location_or_refusal(harness, "/lake/spent")


def test_an_iceberg_table_waits_for_a_catalogue(harness: OperatorHarness) -> None:
    """Two views do not name one table."""
    publish = {"iceberg": {"table": "sales.spent"}}
    made = body("Dataflow", {"instance": "default", "sql": "SELECT 1", "materializedView": {"publish": publish}}, "d")
    state = put_object(harness, made)
    with pytest.raises(Waiting, match=r"sales\.spent has no catalogue") as waiting:
        published_locations(harness.context, state, Dataflow.parse(made), "/data")
    assert waiting.value.reason == "NoIcebergCatalogue"
    harness.put({"storage": {"location": "/data"}, "publish": {"iceberg": {"uri": "https://c"}}}, None)
    (view,) = published_locations(harness.context, state, Dataflow.parse(made), "/data").values()
    assert view.iceberg == "sales.spent"
    exports = [{"name": name, "materializedView": {"from": "v", "publish": publish}} for name in ("a", "b")]
    spec = {"instance": "default", "views": [{"name": "v", "sql": "SELECT 1"}], "exports": exports}
    two = body("Dataflow", spec, "two")
    with pytest.raises(Waiting, match="two views of this Dataflow name one Iceberg table"):
        published_locations(harness.context, put_object(harness, two), Dataflow.parse(two), "/data")


def test_no_view_is_published_beside_the_shards_of_an_instance() -> None:
    """Nor around them; whichever instance's they are."""
    for storage, location in (
        ("/lake/shards", "/lake/shards/x"),
        ("/lake/a/shards", "/lake/a"),
        ("/lake/s", "/lake/s"),
    ):
        harness = OperatorHarness()
        harness.put({"storage": {"location": storage}, "publish": {"locations": ["/lake"]}}, None)
        assert "LocationTaken" in location_or_refusal(harness, location)
        assert "ComputeInstance default keeps its tables there" in location_or_refusal(harness, location)


BAD_PREFIX: dict[str, Any] = {"storage": {"location": "/lake//shards"}, "publish": {"locations": ["/a b"]}}


@pytest.mark.parametrize(
    ("spec", "namespace", "location", "told"),
    [
        (BAD_PREFIX, "ns", "/lake/shards/x", "ComputeInstance broken keeps its tables there"),
        (BAD_PREFIX, "ns", "/lake/spent", ""),
        (UNREADABLE, "ns", "/lake/spent", "ComputeInstance broken may keep its tables there: this version of the"),
        (UNREADABLE, "else", "/lake/spent", "a ComputeInstance of another namespace may keep its tables there: this"),
    ],
)
def test_an_instance_that_cannot_be_read_keeps_its_storage(
    harness: OperatorHarness, spec: dict[str, Any], namespace: str, location: str, told: str
) -> None:
    made = body("ComputeInstance", spec, "broken", namespace=namespace)
    harness.cache.put(Key(INSTANCES, namespace, "broken"), made)
    taken = f"LocationTaken: location {location} is taken: {told}"
    assert location_or_refusal(harness, location).startswith(taken if told else location)
    assert harness.context.instance(namespace, "broken") is None
    if "may" in told:
        assert location_or_refusal(harness, location, at=location) == location, "who is published there stays"


def test_an_instance_that_cannot_be_read_any_more_keeps_the_storage_that_it_had(harness: OperatorHarness) -> None:
    harness.put(UNREADABLE, None)
    assert harness.context.instance("ns", "default") is None
    assert location_or_refusal(harness, "/lake/spent") == "/lake/spent"


@pytest.mark.parametrize("was_read", [True, False])
def test_what_an_instance_allows_is_unknown_where_it_cannot_be_read(harness: OperatorHarness, was_read: bool) -> None:
    """It does not count as an instance that is gone: what was read last holds, and an older Dataflow of it has its
    place."""
    if not was_read:
        harness = OperatorHarness()
    harness.put({"storage": {"location": "/data"}, "publish": {"locations": ["/a b"]}}, None)
    text = "LocationNotAllowed: location /lake/spent is not allowed: this version of the operator cannot read "
    assert location_or_refusal(harness, "/lake/spent").startswith(
        "/lake/spent" if was_read else f"{text}ComputeInstance default"
    )
    put_object(harness, manifest("/lake/spent", "older", created="2026-01-01T00:00:00Z"))
    allows = {"storage": {"location": "/data"}, "publish": {"locations": ALLOWED}}
    harness.cache.put(Key(INSTANCES, "ns", "other"), body("ComputeInstance", allows, "other"))
    made = manifest("/lake/spent")
    made["spec"]["instance"] = "other"
    with pytest.raises(Waiting, match="Dataflow older is to be published there, and is older"):
        published_locations(harness.context, put_object(harness, made), Dataflow.parse(made), "/data")


@pytest.mark.parametrize("theirs", ["/lake/spent", "/lake/spent/more", "/lake/spen"])
def test_two_views_share_no_place(harness: OperatorHarness, theirs: str) -> None:
    """The one that is published there goes on, the younger object waits; one in the other is a shared place, too."""
    taken = theirs != "/lake/spen"
    put_object(harness, manifest("/lake/none", "other", namespace="else"), theirs)
    told = location_or_refusal(harness, "/lake/spent")
    assert told.startswith("LocationTaken: location /lake/spent is taken: a Dataflow of another namespace") == taken
    harness.context.registry.forget(Key(DATAFLOWS, "else", "other"))
    put_object(harness, manifest(theirs, "older", created="2026-01-01T00:00:00Z"))
    put_object(harness, manifest("/lake/spent/", "younger", created="2026-01-03T00:00:00Z"))
    assert (
        "Dataflow older is to be published there, and is older" in location_or_refusal(harness, "/lake/spent")
    ) == taken
    assert location_or_refusal(harness, "/lake/spent", at="/lake/spent") == "/lake/spent", (
        "who is published there stays"
    )


def test_two_views_of_a_dataflow_share_no_place(harness: OperatorHarness) -> None:
    def export(name: str, location: str) -> dict[str, Any]:
        return {"name": name, "materializedView": {"from": name, "publish": {"location": location}}}

    views = [{"name": "a", "sql": "SELECT 1"}, {"name": "b", "sql": "SELECT 2"}]
    for other, is_taken in (("/lake/x/b", True), ("/lake/y", False)):
        exports = [export("a", "/lake/x"), export("b", other)]
        made = body("Dataflow", {"instance": "default", "views": views, "exports": exports}, "d")
        state = put_object(harness, made)
        if is_taken:
            with pytest.raises(Waiting, match="view b of this Dataflow is published there, too"):
                published_locations(harness.context, state, Dataflow.parse(made), "/data")
        else:
            places = published_locations(harness.context, state, Dataflow.parse(made), "/data")
            assert {name: view.location for name, view in places.items()} == {"a": "/lake/x", "b": "/lake/y"}


def test_without_a_location_it_is_in_the_storage(harness: OperatorHarness) -> None:
    spec = {"instance": "default", "sql": "SELECT 1", "materializedView": {"publish": {}}}
    made = body("Dataflow", spec, "d")
    (view,) = published_locations(harness.context, put_object(harness, made), Dataflow.parse(made), "/data").values()
    assert (view.location, view.chosen) == ("/data/ns/_published/d/d", False)


@pytest.mark.parametrize("location", ["/lake/a b", "/lake//spent", "/lake/_x", "/lake/../lake/spent"])
def test_a_manifest_that_cannot_be_parsed_blocks_no_place(harness: OperatorHarness, location: str) -> None:
    older = manifest(location, "older", created="2026-01-01T00:00:00Z")
    older["spec"]["sql"] = "SELECT 1"
    put_object(harness, older)
    for place in ("/lake/spent", "/lake/a/x", "/lake/a"):
        assert location_or_refusal(harness, place) == place


def test_the_log_names_the_dataflow_of_another_namespace_once(
    harness: OperatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """The condition does not: whoever writes a Dataflow learns nothing of other namespaces."""
    put_object(harness, manifest("/lake/none", "other", namespace="else"), "/lake/spent")
    state = put_object(harness, made := manifest("/lake/spent"))
    with caplog.at_level("INFO"):
        for _ in range(3):
            with pytest.raises(Waiting) as waiting:
                published_locations(harness.context, state, Dataflow.parse(made), "/data")
            assert "other" not in str(waiting.value).replace("another", "")
            state.obstacles.planning = Planning(str(waiting.value))
    (record,) = [each for each in caplog.records if "is taken" in each.getMessage()]
    assert "ns/d" in record.getMessage()
    assert "else/other publishes /lake/spent" in record.getMessage()


@pytest.mark.parametrize(
    ("path", "namespace", "is_taken"),
    [
        ("/lake/spent", "ns", True),
        ("/lake/spent/in", "ns", True),
        ("/lake//spent", "ns", True),
        ("file:///lake/spent//in", "ns", True),
        ("/lake", "ns", False),
        ("/lake/spends", "ns", False),
        ("/lake/spent", "else", False),
    ],
)
def test_no_view_is_published_where_files_are_dropped_for_a_source(
    harness: OperatorHarness, path: str, namespace: str, is_taken: bool
) -> None:
    """Its clean-up would delete them. A source reads nothing that lies in folders below its own. Sources of other
    namespaces block nothing: any path may stand in them."""
    files = {"path": path, "tables": [{"name": "t", "format": "csv"}]}
    made = body("DataSource", {"instance": "default", "files": files}, "drops", namespace=namespace)
    harness.cache.put(Key(DATA_SOURCES, namespace, "drops"), made)
    taken = "LocationTaken: location /lake/spent is taken: DataSource drops reads files there"
    assert location_or_refusal(harness, "/lake/spent") == (taken if is_taken else "/lake/spent")
    assert location_or_refusal(harness, "/lake/spent", at="/lake/spent") == "/lake/spent", (
        "who is published there stays"
    )


@pytest.mark.parametrize("location", ["/", "/lake", "s3://", "/other/spent", "/lake/spent"])
def test_an_older_manifest_blocks_no_place_that_its_own_instance_does_not_allow(
    harness: OperatorHarness, location: str
) -> None:
    put_object(harness, manifest(location, "older", created="2026-01-01T00:00:00Z", namespace="else"))
    assert location_or_refusal(harness, "/lake/spent") == "/lake/spent"


@pytest.mark.parametrize("at", ["/lake/spent/more", "/lake"])
def test_a_view_moves_to_no_place_in_or_around_its_own(harness: OperatorHarness, at: str) -> None:
    told = location_or_refusal(harness, "/lake/spent", at=at)
    assert told == (
        f"LocationTaken: location /lake/spent is taken: this Dataflow publishes a view at {at}, and no table lies in "
        "another one"
    )

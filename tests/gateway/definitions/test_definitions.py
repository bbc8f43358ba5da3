"""Dataflows that the gateway writes for users: a real API server with its rights, patches and conflicts.

The planner is scripted: it refuses what has the word `nope`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.gateway.registries import add_dataflow, registry
from tests.waiting import BOUND, until
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.errors import KubectlFailed
from tidemark_operator.errors import DefinitionRefused, StatementRefused
from tidemark_operator.gateway.admission.limits import GatewayLimits
from tidemark_operator.gateway.auth.access import Access, Forbidden, FullAccess, UserAccess
from tidemark_operator.gateway.auth.recent_answers import RecentAnswers
from tidemark_operator.gateway.definitions.definition import CHANGE_ID, CHANGED_BY
from tidemark_operator.gateway.definitions.definitions import Definitions
from tidemark_operator.gateway.definitions.refusals import of_api_error
from tidemark_operator.handlers.finalizers import FINALIZER
from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import DATAFLOWS, ApiError, Body, Kube
from tidemark_operator.kube.reviews import Reviews, User
from tidemark_protocol.messages.planning import Diagnostic, Planned, PlanRequest, Refused
from tidemark_protocol.pb.gateway_pb2 import DefineRequest, DropRequest

USER = "berta"


class Planner:
    """`between`: runs while a statement is planned."""

    between: Callable[[], Awaitable[Any]] | None = None

    async def plan(self, request: PlanRequest, *, patient: bool) -> Planned | Refused:
        if self.between is not None:
            await self.between()
        if "nope" in request.views[0].sql:
            return Refused((Diagnostic("UNRESOLVED_COLUMN", "no such column", line=1, column=8, word="nope"),))
        return Planned((), (), (), (), "")


class Place:
    """The definitions of a gateway, and the namespace `namespace`."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self.kube, self.namespace, self.planner, self.cache = kube, namespace, Planner(), Cache()
        self.registry, self.warning = registry(), ""
        parts = {"kube": kube, "cache": self.cache, "registry": self.registry, "planner": self.planner}
        self.definitions = Definitions(cast(Any, SimpleNamespace(**parts)), GatewayLimits())
        self.access: Access = UserAccess(User(USER), Reviews(kube), RecentAnswers(lambda: 0.0))

    async def define(self, name: str = "v", sql: str = "SELECT 1 AS a", **more: Any) -> str:
        asked = {"action": "create", "kind": "materializedView", "dialect": "postgres", "id": "1", **more}
        asked["options"] = {"instance": "default", **asked.get("options", {})}
        request = DefineRequest(namespace=self.namespace, name=name, sql=sql, **asked)
        defined = await self.definitions.define(self.access, request)
        self.warning = defined.warning
        return defined.outcome

    async def drop(self, name: str = "v", kind: str = "materializedView", **more: Any) -> str:
        request = DropRequest(namespace=self.namespace, name=name, kind=kind, **more)
        dropped = await self.definitions.drop(self.access, request)
        self.warning = dropped.warning
        return dropped.outcome

    async def body(self, name: str = "v") -> Body:
        found = await self.kube.get(DATAFLOWS, self.namespace, name)
        assert found is not None
        return found

    async def stored(self, generation: int) -> None:
        """Wait until `v` is of the generation."""
        for _ in range(int(BOUND / 0.05)):
            found = await self.kube.get(DATAFLOWS, self.namespace, "v")
            if found is not None and found["metadata"]["generation"] >= generation:
                return
            await asyncio.sleep(0.05)

    async def apply(self, name: str, spec: Body, **metadata: Any) -> Body:
        body = {"metadata": {"name": name, **metadata}, "spec": {"instance": "default", **spec}}
        return await self.kube.create(DATAFLOWS, self.namespace, body)


Scenario = Callable[[Place], Awaitable[None]]


@pytest.fixture
def run(kinds_installed: ControlPlane, namespace: str) -> Callable[..., None]:
    """Runs a scenario for a user with these verbs on Dataflows."""

    def run(scenario: Scenario, verbs: str = "create,patch,delete,list") -> None:
        rules = "--resource=dataflows.compute.tidemark.dev,datasources.compute.tidemark.dev"
        if verbs:
            kinds_installed.kubectl("-n", namespace, "create", "role", "define", f"--verb={verbs}", rules)
            binding = ("create", "rolebinding", "define", "--role=define", f"--user={USER}")
            kinds_installed.kubectl("-n", namespace, *binding)
            until(lambda: _may(kinds_installed, namespace, verbs.split(",")[0]))

        async def bounded() -> None:
            async with asyncio.timeout(BOUND), Kube.connect(kinds_installed.kubeconfig) as kube:
                await scenario(Place(kube, namespace))

        asyncio.run(bounded())

    return run


def _may(plane: ControlPlane, namespace: str, verb: str) -> bool:
    asked = ("auth", "can-i", verb, "dataflows.compute.tidemark.dev", f"--as={USER}")
    try:
        return plane.kubectl("-n", namespace, *asked).strip() == "yes"
    except KubectlFailed:
        return False


@pytest.mark.cluster
def test_a_user_defines_edits_and_drops_a_view(run: Callable[..., None]) -> None:
    """The object is as kubectl would have made it, and has the user's name."""

    async def scenario(place: Place) -> None:
        options = {"deletion_policy": "delete", "refresh_every": "1h", "refresh_policy": "FULL"}
        assert await place.define(options=options) == "created"
        made = await place.body()
        assert made["metadata"]["annotations"] == {CHANGED_BY: USER, CHANGE_ID: "1"}
        spec = made["spec"]
        assert (spec["sql"], spec["dialect"], spec["instance"]) == ("SELECT 1 AS a", "postgres", "default")
        assert (spec["materializedView"], spec["deletionPolicy"]) == ({}, "Delete")
        assert (spec["refresh"]["every"], spec["refreshPolicy"]) == ("1h", "full")
        with pytest.raises(DefinitionRefused, match="already exists") as refused:
            await place.define(id="2")
        assert refused.value.sqlstate == "42P07"
        assert await place.define(id="3", if_absent=True) == "exists"
        assert await place.define(sql="SELECT 2 AS a", id="4", action="replace") == "replaced"
        assert (await place.body())["spec"]["sql"] == "SELECT 2 AS a"
        assert (await place.body())["spec"]["deletionPolicy"] == "Delete", "what an edit does not name stays"
        assert await place.drop() == "deleted"
        assert await place.drop(if_present=True) == "absent"
        with pytest.raises(DefinitionRefused, match="does not exist"):
            await place.drop()
        assert await place.define("i", kind="index", key=["a"], id="5", action="createOrReplace") == "created"
        assert (await place.body("i"))["spec"]["index"] == {"key": ["a"]}

    run(scenario)


@pytest.mark.cluster
@pytest.mark.parametrize("verb", ["create", "patch", "delete"])
def test_each_statement_needs_its_own_verb(run: Callable[..., None], verb: str) -> None:
    """On Dataflows themselves, by the API server's word; the others are refused, and nothing is written."""

    async def scenario(place: Place) -> None:
        await place.apply("there", {"sql": "SELECT 1 AS a", "materializedView": {}})
        outcomes: dict[str, Callable[[], Awaitable[str]]] = {
            "create": lambda: place.define("new"),
            "patch": lambda: place.define("there", sql="SELECT 2 AS a", action="replace"),
            "delete": lambda: place.drop("there"),
        }
        for each, ask in outcomes.items():
            if each != verb:
                with pytest.raises(Forbidden, match=f"{USER} may not {each} dataflows"):
                    await ask()
        assert (await place.body("there"))["metadata"]["generation"] == 1
        assert await place.kube.get(DATAFLOWS, place.namespace, "new") is None
        assert await outcomes[verb]() in ("created", "replaced", "deleted")

    run(scenario, verb)


@pytest.mark.cluster
def test_crash_a_repeated_call_finds_its_own_write(run: Callable[..., None]) -> None:
    """The operator died after the write: the next one answers as it would have, and writes nothing."""

    async def scenario(place: Place) -> None:
        await place.define()
        made = await place.body()
        assert await place.define() == "created"
        assert await place.define(sql="SELECT 2 AS a", id="2", action="replace") == "replaced"
        edited = await place.body()
        assert await place.define(sql="SELECT 2 AS a", id="2", action="replace") == "replaced"
        assert (await place.body())["metadata"]["resourceVersion"] == edited["metadata"]["resourceVersion"]
        assert edited["metadata"]["uid"] == made["metadata"]["uid"]
        await place.drop()
        assert await place.drop(repeated=True) == "deleted"

    run(scenario)


@pytest.mark.cluster
def test_a_repeated_call_does_not_undo_what_others_did_after_it(run: Callable[..., None]) -> None:
    """Their edit stays, and so does an object that may be a new one."""

    async def scenario(place: Place) -> None:
        await place.define()
        await place.define(sql="SELECT 2 AS a", id="2", action="replace")
        await place.define(sql="SELECT 3 AS a", id="3", action="replace")
        assert await place.define(sql="SELECT 2 AS a", id="2", action="replace") == "replaced"
        assert (await place.body())["spec"]["sql"] == "SELECT 3 AS a"
        with pytest.raises(DefinitionRefused, match="it may be a new one") as refused:
            await place.drop(repeated=True)
        assert refused.value.sqlstate == "40001"
        assert await place.drop() == "deleted"

    run(scenario)


@pytest.mark.cluster
def test_an_edit_of_another_is_a_conflict_and_a_status_is_none(run: Callable[..., None]) -> None:
    """Both are written while the planner plans."""

    async def scenario(place: Place) -> None:
        await place.define()

        async def label() -> None:
            await place.kube.patch(DATAFLOWS, place.namespace, "v", {"metadata": {"labels": {"a": "b"}}})

        place.planner.between = label
        assert await place.define(sql="SELECT 2 AS a", id="2", action="replace") == "replaced"

        async def edit() -> None:
            await place.kube.patch(DATAFLOWS, place.namespace, "v", {"spec": {"sql": "SELECT 9 AS a"}})

        place.planner.between = edit
        with pytest.raises(DefinitionRefused, match="changed by another") as refused:
            await place.define(sql="SELECT 3 AS a", id="3", action="replace")
        assert refused.value.sqlstate == "40001"
        assert (await place.body())["spec"]["sql"] == "SELECT 9 AS a"

    run(scenario)


@pytest.mark.cluster
def test_objects_of_kubectl_are_dropped_unless_they_hold_more(run: Callable[..., None]) -> None:
    """One view and one export are what SQL names; a Dataflow of several, or of another kind, stays as it is."""

    async def scenario(place: Place) -> None:
        view = {"name": "v", "sql": "SELECT 1 AS a"}
        exports = [{"name": "e", "materializedView": {"from": "v"}}, {"name": "f", "index": {"from": "v"}}]
        await place.apply("several", {"views": [view], "exports": exports})
        await place.apply("one", {"views": [view], "exports": exports[:1]})
        for ask in (place.drop, lambda name: place.define(name, action="replace", id="2")):
            with pytest.raises(DefinitionRefused, match=r"holds more than one object \(e, f\)"):
                await ask("several")
        with pytest.raises(DefinitionRefused, match="is no view or index: it is a materialized view"):
            await place.drop("one", "index")
        assert await place.define("one", sql="SELECT 5 AS a", action="replace", id="3") == "replaced"
        assert (await place.body("one"))["spec"]["views"] == [{"name": "v", "sql": "SELECT 5 AS a"}]
        assert await place.drop("one") == "deleted"

    run(scenario)


@pytest.mark.cluster
def test_what_the_planner_or_the_api_server_refuses_is_not_stored(run: Callable[..., None]) -> None:
    async def scenario(place: Place) -> None:
        with pytest.raises(StatementRefused, match="no such column") as refused:
            await place.define(sql="SELECT nope")
        assert (refused.value.line, refused.value.column) == (1, 8)
        for more, message, sqlstate in (
            ({"name": "a_b"}, "cannot be the name", "42602"),
            ({"id": "1 2"}, "letters and digits", "22023"),
            ({"options": {"sekret": "x"}}, "is not of instance", "22023"),
            ({"options": {"adopt": "perhaps"}}, "is true or false", "22023"),
            ({"options": {"refresh_every": "soon"}}, "spec.refresh.every", "22023"),
            ({"kind": "continualTask"}, "is not of", "22023"),
            ({"action": "replace"}, "does not exist", "42P01"),
        ):
            with pytest.raises(DefinitionRefused, match=message) as failed:
                await place.define(**more)
            assert failed.value.sqlstate == sqlstate
        assert await place.kube.list(DATAFLOWS, namespace=place.namespace) == []

    run(scenario)


@pytest.mark.cluster
def test_create_waits_for_an_object_of_its_name_that_goes(run: Callable[..., None]) -> None:
    """A finalizer keeps it for a while after DROP."""

    async def scenario(place: Place) -> None:
        before = await place.apply("v", {"sql": "SELECT 1 AS a", "materializedView": {}}, finalizers=[FINALIZER])
        assert await place.drop() == "deleted"
        again = asyncio.create_task(place.define(id="2"))
        await asyncio.sleep(0.5)
        assert not again.done()
        await place.kube.patch(DATAFLOWS, place.namespace, "v", {"metadata": {"finalizers": None}})
        assert await again == "created"
        assert (await place.body())["metadata"]["uid"] != before["metadata"]["uid"]

    run(scenario)


@pytest.mark.cluster
def test_waiting_ends_with_the_conditions_of_this_generation(run: Callable[..., None]) -> None:
    """Conditions of an earlier generation mean nothing; a reason that stays ends it with the condition's text."""

    async def scenario(place: Place) -> None:
        key = Key(DATAFLOWS, place.namespace, "v")

        async def state(generation: int, reason: str, ready: str, complete: int = 6) -> None:
            kinds = {"Planned": ready, "Erroring": "False", "Ready": ready, "Progressing": "False"}
            listed = [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason if kind != "Erroring" else "NoErrors",
                    "message": "see condition Planned" if kind in ("Ready", "Progressing") else "because",
                    "observedGeneration": generation,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
                for kind, status in kinds.items()
            ]
            status = {"conditions": listed, "revision": {"asOf": 5}, "writeFrontier": {"time": complete}}
            place.cache.put(key, {**await place.body(), "status": status})

        made = asyncio.create_task(place.define(wait=True))
        await place.stored(1)
        await state(0, "UpToDate", "True")
        await asyncio.sleep(0.5)
        assert not made.done()
        await place.kube.patch(DATAFLOWS, place.namespace, "v", {"metadata": {"labels": {"a": "b"}}})
        await state(1, "UpToDate", "True")
        assert await made == "created"
        kept = asyncio.create_task(place.define(sql="SELECT 1 + 1 AS a", action="replace", id="1b", wait=True))
        await place.stored(2)
        await state(2, "UpToDate", "True")
        await asyncio.sleep(0.5)
        assert not kept.done(), "a table that is kept has the contents of before at times that are complete"
        await place.kube.patch(DATAFLOWS, place.namespace, "v", {"metadata": {"labels": {"a": "c"}}})
        await state(2, "UpToDate", "True", complete=7)
        assert await kept == "replaced"
        edited = asyncio.create_task(place.define(sql="SELECT 2 AS a", action="replace", id="2", wait=True))
        await place.stored(3)
        await state(3, "WaitingForInputs", "False")
        with pytest.raises(DefinitionRefused, match=r"Planned is False \(WaitingForInputs\): because") as refused:
            await edited
        assert refused.value.sqlstate == "42P01"

    run(scenario)


def test_a_view_that_others_read_stays() -> None:
    """They would be without their input, and the object would not go."""
    bodies: dict[str, Body] = {
        name: {
            "metadata": {"name": name, "uid": "u", "resourceVersion": "1"},
            "spec": {"sql": "SELECT 1", "materializedView": {}},
        }
        for name in ("view-a", "reader")
    }
    deleted = list[str]()

    class Stored:
        async def get(self, resource: Any, namespace: str, name: str) -> Body:
            return bodies[name]

        async def delete(self, resource: Any, namespace: str, name: str, uid: str, **_: Any) -> None:
            deleted.append(name)

    place = Place(cast(Kube, Stored()), "ns")
    place.access = FullAccess()
    add_dataflow(place.registry, "view-a", shards=("s.a",))
    add_dataflow(place.registry, "reader", shards=("s.a",), reads=("view-a",))
    with pytest.raises(DefinitionRefused, match="Dataflow reader reads it") as refused:
        asyncio.run(place.drop("view-a"))
    assert refused.value.sqlstate == "2BP01"
    assert deleted == []
    bodies["reader"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    asyncio.run(place.drop("view-a"))
    assert deleted == ["view-a"]


@pytest.mark.cluster
def test_a_right_that_is_taken_away_while_a_statement_is_planned_is_missing(
    run: Callable[..., None], kinds_installed: ControlPlane, namespace: str
) -> None:
    def take_away() -> None:
        kinds_installed.kubectl("-n", namespace, "delete", "rolebinding", "define")
        until(lambda: not _may(kinds_installed, namespace, "create"))

    async def scenario(place: Place) -> None:
        now = [0.0]
        place.access = UserAccess(User(USER), Reviews(place.kube), RecentAnswers(lambda: now[0]))

        async def between() -> None:
            await asyncio.to_thread(take_away)
            now[0] += 60

        place.planner.between = between
        with pytest.raises(Forbidden, match="may not create dataflows"):
            await place.define()
        assert await place.kube.get(DATAFLOWS, namespace, "v") is None

    run(scenario)


@pytest.mark.parametrize("text", [
    'dataflows "v" is forbidden: User "op" cannot create resource "dataflows" in API group "compute.tidemark.dev"',
    'dataflows "v" is forbidden: exceeded quota: few, requested: count/dataflows=1, used: 1, limited: 1',
    'admission webhook "policy.example.com" denied the request: you cannot use this instance',
])  # fmt: skip
def test_a_refusal_of_the_api_server_has_its_reason(text: str) -> None:
    """Nothing is guessed from the words: a webhook's are anything."""
    body = {"kind": "Status", "reason": "Forbidden", "code": 403, "message": text}
    refused = of_api_error(ApiError(403, "POST: " + json.dumps(body)))
    assert isinstance(refused, DefinitionRefused)
    assert refused.sqlstate == "42501"
    assert str(refused) == f"the API server refuses the operator's write: {text}"

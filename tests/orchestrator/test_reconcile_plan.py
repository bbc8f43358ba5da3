"""The objects that the operator applies and deletes, for every state that it may find."""

from __future__ import annotations

from dataclasses import replace

from tests.orchestrator.pods import SETTINGS, SMALL
from tidemark_operator.orchestrator.kubernetes.names import member
from tidemark_operator.orchestrator.kubernetes.reconcile_plan import Decision, OwnedStatefulSet, decide
from tidemark_operator.resources.manifest.replica import UpdateStrategy

NEW = member(SMALL, SETTINGS)
RECREATED = member(replace(SMALL, strategy=UpdateStrategy.RECREATE), SETTINGS)
KEY = SMALL.key


def present_set(shape: str, made: int = 0, key: str = KEY, going: bool = False) -> OwnedStatefulSet:
    metadata = {
        "name": f"r1-{shape}",
        "namespace": "ns",
        "uid": shape,
        "creationTimestamp": f"2026-01-01T00:00:0{made}Z",
    }
    return OwnedStatefulSet(key, shape, {"metadata": metadata | ({"deletionTimestamp": "now"} if going else {})})


OLD, OLDER = present_set("old", 1), present_set("older", 0)
CURRENT = present_set(NEW.shape, 2)


def test_wanted_objects_are_applied_repeatedly() -> None:
    """There or not: a belonging may be missing."""
    assert decide({KEY: NEW}, [], frozenset()) == decide({KEY: NEW}, [CURRENT], frozenset())
    assert decide({KEY: NEW}, [], frozenset()).apply == (NEW,)


def test_unwanted_replicas_are_deleted_in_every_shape() -> None:
    """Also what an earlier operator made; what is going already is left alone."""
    assert decide({}, [OLD, CURRENT, present_set("x", going=True)], frozenset()).delete == (OLD, CURRENT)


def test_a_retained_replica_is_left_alone_until_its_shape_is_known() -> None:
    """An operator that has just begun knows that it is wanted before it knows how."""
    decision = decide({}, [OLD, CURRENT], frozenset(), {KEY})

    assert (decision.apply, decision.delete) == ((), ())


def test_a_surge_keeps_the_serving_pod_until_the_takeover() -> None:
    """The new shape is made beside it."""
    before = decide({KEY: NEW}, [OLD, CURRENT], frozenset())
    after = decide({KEY: NEW}, [OLD, CURRENT], {(KEY, NEW.shape)})

    assert (before.apply, before.delete) == ((NEW,), ())
    assert (after.apply, after.delete) == ((NEW,), (OLD,))


def test_of_several_surges_the_oldest_shape_serves() -> None:
    """Edited again before the first edit was hydrated: the shape in the middle goes."""
    assert decide({KEY: NEW}, [OLDER, OLD], frozenset()).delete == (OLD,)
    assert decide({KEY: NEW}, [present_set("older", 0, going=True), OLD], frozenset()).delete == ()


def test_an_edit_that_is_taken_back_leaves_the_serving_pod() -> None:
    """The shape that hydrated beside it goes."""
    serving = present_set(NEW.shape, 0)

    assert decide({KEY: NEW}, [serving, OLD], frozenset()) == Decision((NEW,), (OLD,))


def test_an_edit_that_is_taken_back_after_the_takeover_is_another_surge() -> None:
    """The shape that took over serves, though the wanted one is older, and there still."""
    assert decide({KEY: NEW}, [present_set(NEW.shape, 0), OLD], {(KEY, "old")}) == Decision((NEW,), ())


def test_the_new_shape_serves_after_a_takeover() -> None:
    """The old shape could not be deleted yet when the next edit came."""
    assert decide({KEY: NEW}, [OLDER, OLD], {(KEY, "old")}) == Decision((NEW,), (OLDER,))


def test_recreate_waits_until_the_old_one_is_gone() -> None:
    """It may need the old one's room."""
    first = decide({KEY: RECREATED}, [OLD], frozenset())
    then = decide({KEY: RECREATED}, [present_set("old", going=True)], frozenset())

    assert (first.apply, first.delete) == ((), (OLD,))
    assert (then.apply, then.delete) == ((), ())
    assert decide({KEY: RECREATED}, [], frozenset()).apply == (RECREATED,)


def test_a_recreated_resource_waits_for_the_pods_of_its_predecessor() -> None:
    """The API server would refuse a StatefulSet of that name, and the refusal stand in a condition."""
    left = present_set(NEW.shape, key="deleted")
    going = present_set(NEW.shape, key="deleted", going=True)
    elsewhere = replace(left, body={"metadata": left.body["metadata"] | {"namespace": "another"}})

    assert (decide({KEY: NEW}, [left], frozenset()).apply, decide({KEY: NEW}, [left], frozenset()).delete) == (
        (),
        (left,),
    )
    assert decide({KEY: NEW}, [going], frozenset()).apply == ()
    assert decide({KEY: NEW}, [elsewhere], frozenset(), {"deleted"}).apply == (NEW,)
    assert decide({KEY: NEW}, [present_set("old", key="deleted")], frozenset()).apply == (NEW,)

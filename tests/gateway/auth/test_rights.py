"""The rights that a statement needs, and the refusal without them."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.registries import add_dataflow, registry
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.catalogue.relations import owners
from tidemark_operator.errors import QueryRefused, RelationChanged
from tidemark_operator.gateway.auth.access import Access, Forbidden
from tidemark_operator.gateway.auth.rights import check_rights, raise_refusal
from tidemark_operator.kube.reviews import Action
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Diagnostic, Refused

LISTS = ("list dataflows in namespace ns", "list datasources in namespace ns")
S = "get datasources/data s in namespace ns"
STATUS = GlobalId("tidemark_introspection.frontiers")
NO_SUCH = Refused((Diagnostic("UNRESOLVED_RELATION", "relation nope does not exist; s has a, b"),))


class Caller(Access):
    caller = "anne"

    def __init__(self, *may: str) -> None:
        self.may = may

    async def check(self, *actions: Action) -> None:
        for action in actions:
            if str(action) not in self.may:
                raise Forbidden(f"anne may not {action}")


def ask(caller: Caller, *reads: str) -> None:
    asyncio.run(permit(registry(), caller, *(GlobalId(r) for r in reads)))


async def permit(known: Registry, caller: Caller, *reads: GlobalId) -> None:
    await check_rights(caller, "ns", reads, owners(known.sources("ns"), known.dataflows("ns")))


def refused(caller: Caller) -> None:
    asyncio.run(raise_refusal(caller, "ns", NO_SUCH))


def test_rows_take_the_right_to_the_data_of_each_object() -> None:
    """An index of a Dataflow takes that to the Dataflow's, whatever it is computed from."""
    known = registry()
    index = add_dataflow(known, "d", shards=("s.a",))
    asyncio.run(permit(known, Caller("get dataflows/data d in namespace ns"), index))
    ask(Caller(S), "s.a", "s.b")
    with pytest.raises(Forbidden):
        asyncio.run(permit(known, Caller(S), GlobalId("s.a"), index))


def test_a_statement_without_objects_needs_the_right_to_list() -> None:
    """Otherwise whoever has a token could keep replicas busy."""
    ask(Caller(*LISTS))
    with pytest.raises(Forbidden, match="anne may not list datasources in namespace ns"):
        ask(Caller(S))


def test_introspection_needs_the_right_to_list() -> None:
    """Beside rows both rights are needed."""
    ask(Caller(*LISTS), STATUS)
    ask(Caller(*LISTS, S), STATUS, "s.a")
    with pytest.raises(Forbidden, match="may not list"):
        ask(Caller(S), STATUS, "s.a")
    with pytest.raises(Forbidden, match="may not get datasources/data s"):
        ask(Caller(*LISTS), STATUS, "s.a")


def test_a_relation_without_an_object_is_not_read() -> None:
    """Deleted while the statement was planned: whose right it takes is unknown, and its table may still be there."""
    with pytest.raises(QueryRefused, match="was just changed or deleted: run the statement again"):
        ask(Caller(*LISTS, S), "s.a", "deleted")
    with pytest.raises(RelationChanged):
        ask(Caller(S), "s.a", "deleted")


def test_guessing_names_reveals_nothing() -> None:
    """The same is said of what is not there as of what may not be read, but to those who may see both."""
    with pytest.raises(Forbidden) as hidden:
        ask(Caller(), "s.a")
    with pytest.raises(Forbidden) as missing:
        refused(Caller())
    assert str(hidden.value) == str(missing.value)

    with pytest.raises(Forbidden, match=r"^anne may not get datasources/data s in namespace ns$"):
        ask(Caller(*LISTS), "s.a")
    with pytest.raises(QueryRefused, match="s has a, b"):
        refused(Caller(*LISTS))

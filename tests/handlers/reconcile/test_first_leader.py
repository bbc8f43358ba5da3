"""The first operator of all does not wait for leases of an earlier one; one whose predecessor's Lease somebody deleted
does."""

from __future__ import annotations

import pytest

from tests.gateway.registries import add_dataflow, registry
from tests.handlers.harness import OperatorHarness
from tidemark_operator.catalogue.registry import Registry, SourceState
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES


def with_an_active_revision() -> Registry:
    made = registry()
    made.forget(Key(DATA_SOURCES, "ns", "s"))
    add_dataflow(made, "d", shards=("s.a",))
    return made


def with_a_new_source() -> Registry:
    made = Registry()
    made.put_source(SourceState(Key(DATA_SOURCES, "ns", "s"), "s-uid", "default"))
    return made


@pytest.mark.parametrize(
    ("stored", "term", "is_first"),
    [
        (Registry, 1, True),
        (Registry, 2, False),
        (with_a_new_source, 1, True),
        (registry, 1, False),
        (with_an_active_revision, 1, False),
    ],
)
def test_what_earlier_operators_stored_says_that_they_led(stored: type[Registry], term: int, is_first: bool) -> None:
    """Objects alone do not: they may be there before the first operator."""
    context = OperatorHarness().context
    context.registry, context.leadership.term = stored(), term
    assert context.is_first_leader is is_first

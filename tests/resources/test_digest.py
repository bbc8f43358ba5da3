"""spec_digest: equal while nothing changed that a plan is made from, different as soon as something did."""

from __future__ import annotations

from typing import Any

import pytest

from tests.resources.manifests import dataflow
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.digest import spec_digest

BASE = {"sql": "SELECT a, b FROM s.t", "index": {"key": ["a", "b"]}}
LONG = {
    "views": [{"name": "v", "sql": "SELECT 1 AS a"}, {"name": "w", "sql": "SELECT a FROM v"}],
    "exports": [{"name": "x", "index": {"from": "v"}}, {"name": "y", "materializedView": {"from": "w"}}],
}


def digest(spec: dict[str, Any], **metadata: Any) -> str:
    return spec_digest(Dataflow.parse(dataflow(spec, **metadata)))


@pytest.mark.parametrize(
    "field",
    [
        {"readPolicy": {"lag": "5m"}},
        {"suspend": True},
        {"deletionPolicy": "Delete"},
        {"adopt": True},
        {"dialect": "spark"},
    ],
)
def test_fields_without_a_say_in_the_plan_leave_the_digest(field: dict[str, Any]) -> None:
    """Nor does a default that is written out."""
    assert digest(BASE | field) == digest(BASE)


def test_labels_and_generation_leave_the_digest() -> None:
    """Metadata is not part of it."""
    assert digest(BASE, labels={"team": "a"}, generation=9) == digest(BASE)


@pytest.mark.parametrize(
    "spec",
    [
        {"sql": "SELECT a, b FROM s.u", "index": {"key": ["a", "b"]}},
        {"sql": "SELECT a, b FROM s.t", "index": {"key": ["b", "a"]}},
        {"sql": "SELECT a, b FROM s.t", "index": {}},
        {"sql": "SELECT a, b FROM s.t", "materializedView": {}},
        BASE | {"asOf": 0},
        BASE | {"until": 1},
    ],
)
def test_inputs_of_a_plan_change_the_digest(spec: dict[str, Any]) -> None:
    """SQL, kind, key and its order, asOf (0 is not absent)."""
    assert digest(spec) != digest(BASE)


def test_when_views_are_refreshed_changes_the_digest() -> None:
    """Each part of a schedule; not how it is written."""
    view = {"sql": "S", "materializedView": {}}
    schedules: list[dict[str, Any]] = [
        {"every": "1h"},
        {"every": "2h"},
        {"every": "1h", "alignedTo": "2026-01-01T00:00:00Z"},
        {"every": "1h", "at": ["2026-01-01T00:00:00Z"]},
        {"at": ["2026-01-01T00:00:00Z"]},
    ]
    digests = [digest(view | {"refresh": schedule}) for schedule in schedules]

    assert len({digest(view), *digests}) == len(schedules) + 1
    assert digest(view | {"refresh": {"every": "60m", "alignedTo": "1970-01-01T00:00:00Z"}}) == digests[0]
    assert digest(view | {"refresh": {"every": "1h"}, "refreshPolicy": "incremental"}) == digests[0]
    assert digest(view | {"refresh": {"every": "1h"}, "refreshPolicy": "full"}) != digests[0]


def test_order_of_exports_means_nothing_and_order_of_views_does() -> None:
    """A view may read an earlier one, exports do not read each other."""
    swapped_exports = LONG | {"exports": LONG["exports"][::-1]}
    swapped_views = LONG | {"views": LONG["views"][::-1]}

    assert digest(swapped_exports) == digest(LONG)
    assert digest(swapped_views) != digest(LONG)


def test_both_forms_of_one_dataflow_are_equal() -> None:
    """Rewriting the short form as the long one plans nothing anew."""
    short = {"sql": "SELECT 1 AS a", "materializedView": {}}
    long = {
        "views": [{"name": "revenue", "sql": "SELECT 1 AS a"}],
        "exports": [{"name": "revenue", "materializedView": {"from": "revenue"}}],
    }

    assert digest(long) == digest(short)


def test_digest_is_the_same_in_every_process_and_version() -> None:
    """It is stored in status: a changed canonical form would plan everything anew on an upgrade."""
    assert digest(BASE) == "sha256:75f6598c25c59b1098c325fcc35b6f2b11c82fc674df2b1ceef8f2ff6fac5a20"

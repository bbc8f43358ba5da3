"""Views that are computed anew and have destinations: the published table gets the difference, at each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.oracle.variants.in_process import without_jobs
from tests.replica.one_view import OneView
from tests.replica.plans import copies, shard
from tests.replica.refreshes.automatic_decisions import decided_by
from tests.replica.tables import Row, persisted, small_table
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.refresh import AUTO, FULL, RefreshSchedule
from tidemark_protocol.plan.sinks.publish import PublishedView, published_location
from tidemark_replica.sinks.destinations import publisher

OFTEN = RefreshSchedule(every_ms=10)


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[OneView]]:
    monkeypatch.setattr(publisher, "TURN_SECONDS", 0.2)
    made: list[OneView] = []
    with without_jobs():
        yield made
        for view in made:
            view.end()


def published_rows(location: str) -> Counter[Row]:
    """The rows of the published table; none where there is no such table."""
    if not (Path(location) / "_delta_log").exists():
        return Counter()
    found = pa.table(QueryBuilder().register("t", DeltaTable(location)).execute("SELECT n, s FROM t").read_all())
    return Counter(zip(found.column("n").to_pylist(), found.column("s").to_pylist(), strict=True))


@pytest.mark.parametrize(("refresh", "policy"), [(OFTEN, FULL), (OFTEN, AUTO), (None, AUTO)])
def test_a_published_table_follows_a_view_that_is_computed_anew(
    tmp_path: Path,
    views: list[OneView],
    monkeypatch: pytest.MonkeyPatch,
    refresh: RefreshSchedule | None,
    policy: str,
) -> None:
    """Also over a process that ends between two recomputations."""
    table = small_table(tmp_path)
    decided_by(monkeypatch, lambda _: True)
    location = published_location(str(tmp_path), "shop", "flow", "view")
    published = PublishedView(location, "shop.flow.view", 1, 24, False)

    def begin(as_of: int) -> OneView:
        plain = copies("d", as_of, source=table.metadata, view=shard("v", str(tmp_path)), refresh=refresh)
        (export,) = plain.sink_exports
        sink = replace(export.sink, publish=published, refresh_policy=policy)
        dataflow = replace(plain, sink_exports=(replace(export, sink=sink),))
        views.append(view := OneView(tmp_path / f"r{len(views)}", dataflow))
        return view

    view = begin(6)
    view.reach(Frontier.at(10))
    for upper in (14, 23, 36, 41, 58):
        table.append(upper, ((upper, "x"), upper - 2, 1), ((upper, "y"), upper - 1, 1))
        if upper == 36:
            view.driver.stop()
            view = begin(22)
        view.reach(Frontier.at(upper))
        wanted = table.at(max(6, upper - 1 if refresh is None else upper - 1 - (upper - 1) % 10))
        assert persisted(str(tmp_path / "v"), upper - 1) == wanted, f"at {upper - 1}"
        view.loop.run_until(lambda rows=wanted: published_rows(location) == rows, view.driver.advance)

"""The operator's short cut for lookups means what the planner means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.planner.catalogue import CATALOGUE
from tidemark_operator.gateway.lookups import Names, recognised
from tidemark_planner.catalyst import Catalyst
from tidemark_planner.peek import plan_peek
from tidemark_protocol.planning import PlanQueryRequest

pytestmark = pytest.mark.spark
NAMES = Names.of(CATALOGUE)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM live WHERE k = 7",
        "SELECT n, k, n FROM live.live WHERE k = -12 LIMIT 5",
        "select `n` from LIVE where `k`=0007;",
        "SELECT amount, product FROM sales.by_customer WHERE customer = 9223372036854775807 LIMIT 0",
        "SELECT * FROM sales.by_product WHERE product = 1",
        "SELECT * FROM far WHERE k = 3",
    ],
)
def test_agree_a_recognised_lookup_is_the_planners_but_for_its_filter(catalyst: Catalyst, sql: str) -> None:
    """The filter is what the lookup does anyway."""
    planned = plan_peek(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/"))

    assert planned.mfp.expressions == ()
    found = recognised(sql, NAMES)
    assert found is not None
    assert found == replace(planned, mfp=replace(planned.mfp, predicates=()))

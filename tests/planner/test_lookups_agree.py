"""The operator's literal lookups agree with the planner's plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.planner.catalogue import CATALOGUE
from tidemark_operator.gateway.query.literal_lookup import RelationNames, recognise
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.peek import plan_peek
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, PlanQueryRequest, Relation
from tidemark_protocol.types import INT, Column

pytestmark = pytest.mark.spark
NAMES = RelationNames.of(CATALOGUE)


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
    """A lookup has no filter: the literals decide."""
    planned = plan_peek(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/"))

    assert planned.mfp.expressions == ()
    found = recognise(sql, NAMES)
    assert found is not None
    assert found == replace(planned, mfp=replace(planned.mfp, predicates=()))


def test_agree_every_word_of_spark_that_is_taken_for_a_column(catalyst: Catalyst) -> None:
    """Names such as current_user are functions without parentheses: the planner gets them."""
    vocabulary = catalyst.jvm.org.apache.spark.sql.catalyst.parser.SqlBaseLexer.VOCABULARY
    spelt = (vocabulary.getLiteralName(at) or "" for at in range(1, vocabulary.getMaxTokenType() + 1))
    words = sorted({w for s in spelt if (w := s.strip("'").lower()).replace("_", "").isalpha()})
    taken = [w for w in words if recognise(f"SELECT {w} FROM d WHERE {w} = 7", RelationNames.of(keyed(w))) is not None]

    assert len(taken) > 300
    for at in range(0, len(taken), 100):
        some = taken[at : at + 100]
        sql = f"SELECT {', '.join(some)} FROM d WHERE {' AND '.join(f'{w} = 7' for w in some)}"
        planned = plan_peek(catalyst, PlanQueryRequest(sql, keyed(*some), "q/"))
        assert recognise(sql, RelationNames.of(keyed(*some))) == replace(
            planned, mfp=replace(planned.mfp, predicates=())
        )


def keyed(*columns: str) -> Catalogue:
    """A relation with an index by all of its columns."""
    made = tuple(Column(name, INT, False) for name in columns)
    return Catalogue((Relation("d", "d", GlobalId("d"), made, index_key=tuple(range(len(made))), short=True),))

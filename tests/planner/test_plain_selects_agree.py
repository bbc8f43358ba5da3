"""The plain SELECTs that the operator recognises agree with the planner's plans."""

from __future__ import annotations

from random import Random

import pytest

from tests.planner.catalogue import CATALOGUE
from tidemark_operator.gateway.query.plain_select import RelationNames, recognise
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.one_shot import plan_query
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, PlannedPeek, PlanQueryRequest, Relation
from tidemark_protocol.types import INT, Column

pytestmark = [pytest.mark.spark, pytest.mark.broad]
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
def test_agree_a_recognised_lookup_is_the_planners(catalyst: Catalyst, sql: str) -> None:
    """A lookup has no filter: the literals decide."""
    planned = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/"))

    assert isinstance(planned, PlannedPeek), planned
    assert planned.literals is not None
    assert planned.mfp.predicates == planned.mfp.expressions == ()
    assert recognise(sql, NAMES) == planned


@pytest.mark.parametrize("seed", range(4))
def test_agree_random_selects_have_the_planners_plan(catalyst: Catalyst, seed: int) -> None:
    """Over every relation of the catalogue: columns of all types, filters of one or several columns, limits. Each
    statement is the planner's peek, or left to the planner."""
    random, recognised = Random(seed), 0
    for sql in (_random_select(random) for _ in range(150)):
        found = recognise(sql, NAMES)
        if found is None:
            continue
        recognised += 1
        planned = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/"))
        assert isinstance(planned, PlannedPeek), (sql, planned)
        assert found == planned, sql
    assert recognised > 20


def _random_select(random: Random) -> str:
    relation = random.choice(CATALOGUE.relations)
    names = [column.name for column in relation.columns]
    shown = ", ".join(random.choices(names, k=random.randint(1, 4))) if random.random() < 0.8 else "*"
    name = f"{_quoted(relation.parent)}.{_quoted(relation.name)}"
    if relation.short and random.random() < 0.5:
        name = _quoted(relation.parent)
    count = random.choice((0, 1, 1, 2, 3))
    filtered = random.sample(relation.columns, min(count, len(relation.columns)))
    if relation.index_key and random.random() < 0.5:
        filtered = [relation.columns[at] for at in relation.index_key] + filtered[: random.randint(0, 1)]
    where = " AND ".join(f"{c.name} = {random.choice(_VALUES)}" for c in filtered)
    limit = f" LIMIT {random.choice((0, 1, 10, 2147483647, 2147483648))}" if random.random() < 0.4 else ""
    return f"SELECT {shown} FROM {name}{f' WHERE {where}' if where else ''}{limit}{random.choice(('', ';', ' '))}"


def _quoted(name: str) -> str:
    return f"`{name}`" if "-" in name else name


_NUMBERS = "0 7 -1 007 2147483647 -2147483648 3000000000 9223372036854775807 1.5 1L 1e3 NULL true".split(" ")
_VALUES = (*_NUMBERS, "- 5", "''", "'a'", "'é '", "'2020-01-01'", "'7'", "'it''s'", "DATE '2020-01-01'")


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
        planned = plan_query(catalyst, PlanQueryRequest(sql, keyed(*some), "q/"))
        assert recognise(sql, RelationNames.of(keyed(*some))) == planned


def keyed(*columns: str) -> Catalogue:
    """A relation with an index by all of its columns."""
    made = tuple(Column(name, INT, False) for name in columns)
    return Catalogue((Relation("d", "d", GlobalId("d"), made, index_key=tuple(range(len(made))), short=True),))

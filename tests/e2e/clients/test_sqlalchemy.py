"""SQLAlchemy before a whole system: two tables of one schema, written in one transaction, and read by a view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.clients.test_pgwire import account, serving
from tests.e2e.system import System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]

TOTALS = """CREATE MATERIALIZED VIEW ormtotals AS
SELECT o.customer, count(*) AS n, sum(l.amount) AS total
FROM ormshop.orders o JOIN ormshop.lines l ON l.order_id = o.id GROUP BY o.customer"""


@pytest.mark.broad
def test_sqlalchemy_creates_tables_of_one_schema_and_writes_them_in_one_transaction(
    system: System, tmp_path: Path
) -> None:
    """`create_all` and `drop_all` with autocommit; a Session's flush of two classes is at one time in both tables."""
    sa, orm = pytest.importorskip("sqlalchemy"), pytest.importorskip("sqlalchemy.orm")
    token = account(system, "sqlalchemy")
    with serving(system, tmp_path) as options:

        def connected() -> psycopg.Connection[Any]:
            return psycopg.connect(**options, password=token)

        with connected() as plain:
            wait_for("the right to create", lambda: _may(plain))
        engine = sa.create_engine("postgresql+psycopg://", creator=connected)
        metadata = sa.MetaData(schema="ormshop")
        orders, lines = _tables(sa, metadata)
        engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        metadata.create_all(engine)
        metadata.create_all(engine)  # what is there stays
        assert sorted(sa.inspect(engine).get_table_names(schema="ormshop")) == ["lines", "orders"]
        for table, key in (("orders", ["id"]), ("lines", ["order_id", "line"])):
            assert sa.inspect(engine).get_pk_constraint(table, schema="ormshop")["constrained_columns"] == key
        with connected() as plain:
            plain.execute("SET tidemark.wait = on")
            plain.execute(TOTALS.encode())
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
        _writes(sa, orm, engine, orders, lines)
        with engine.connect() as connection:
            found = "SELECT customer, n, total FROM ormtotals"
            wait_for("the view", lambda: _rows(sa, connection, found) == [("anne", 3, 6)])
            connection.rollback()
            sums = sa.select(sa.func.count(), sa.func.sum(lines.c.amount)).select_from(lines)
            assert connection.execute(sums).one() == (3, 6)
        engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(sa.exc.InternalError, match="because Dataflow ormtotals reads it"):
            metadata.drop_all(engine)
        with connected() as plain:
            plain.execute("DROP MATERIALIZED VIEW ormtotals")
        metadata.drop_all(engine)
        assert system.kubectl("get", "datasource", "ormshop", "--ignore-not-found") == ""
        metadata.create_all(engine)
        with engine.connect() as connection:
            assert _rows(sa, connection, "SELECT id FROM ormshop.orders") == []
        metadata.drop_all(engine)
        engine.dispose()


def _tables(sa: Any, metadata: Any) -> tuple[Any, Any]:
    """A key of our own choice: there are no sequences."""
    orders = sa.Table(
        "orders",
        metadata,
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("customer", sa.Text, nullable=False),
    )
    lines = sa.Table(
        "lines",
        metadata,
        sa.Column("order_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("line", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("amount", sa.Numeric(12, 2)),
    )
    return orders, lines


def _writes(sa: Any, orm: Any, engine: Any, orders: Any, lines: Any) -> None:
    """A commit, and a transaction that is rolled back, as its second table refuses."""

    class Order:
        pass

    class Line:
        pass

    mapped = orm.registry()
    mapped.map_imperatively(Order, orders)
    mapped.map_imperatively(Line, lines)

    def made(id: int, customer: str, *amounts: int | None) -> list[Any]:
        rows: list[Any] = [_of(Order(), id=id, customer=customer)]
        return rows + [_of(Line(), order_id=id, line=n, amount=amount) for n, amount in enumerate(amounts)]

    with orm.Session(engine) as session:
        session.add_all(made(1, "anne", 1, 2, 3))
        session.commit()
    with orm.Session(engine) as session:
        session.add_all([*made(2, "berta"), _of(Line(), order_id=1, line=0, amount=9)])
        with pytest.raises(sa.exc.IntegrityError, match="lines"):
            session.commit()
    with engine.connect() as connection:
        assert _rows(sa, connection, "SELECT id, customer FROM ormshop.orders") == [(1, "anne")]


def _of(row: Any, **values: Any) -> Any:
    for name, value in values.items():
        setattr(row, name, value)
    return row


def _rows(sa: Any, connection: Any, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(sa.text(sql))]


def _may(connection: psycopg.Connection[Any]) -> bool:
    """Whether the API server knows the new rights."""
    try:
        connection.execute("CREATE TABLE IF NOT EXISTS ormshop.probe (id bigint)")
        connection.execute("CREATE TABLE IF NOT EXISTS ormshop.probes (id bigint)")
        connection.execute("DROP TABLE ormshop.probe")
        connection.execute("DROP TABLE ormshop.probes")
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True

"""Continual tasks in the common tongue of Spark and DuckDB. Add one per thing that could go wrong."""

from __future__ import annotations

from tests.continual_tasks.fold import Task
from tests.oracle.tables import TU, T
from tidemark_protocol.types import BIGINT, Column

TASKS = (
    Task(
        "audit log",
        {"v": "SELECT a, b, s, _change_type AS what, _commit_timestamp AS at FROM table_changes('t')"},
        {"t": T},
    ),
    Task(
        "changes met with what another table holds now",
        {"v": "SELECT c.a, u.d, c._change_type AS what FROM table_changes('t') c JOIN u ON u.a = c.a"},
        TU,
    ),
    Task(
        "a snapshot of one table at each change of another",
        {"v": "SELECT a, count(*) AS n, sum(b) AS total FROM t GROUP BY a"},
        TU,
        watch="u",
    ),
    Task(
        "upsert",
        {
            "v": "SELECT a, max(b) AS b FROM table_changes('t') WHERE _change_type = 'insert' GROUP BY a",
            "gone": "SELECT log.a, log.b FROM log JOIN table_changes('t') c ON c.a = log.a",
        },
        {"t": T},
        delete="gone",
    ),
    Task(
        "retention",
        {
            "v": "SELECT a, s, _commit_timestamp AS at FROM table_changes('t') WHERE _change_type = 'insert'",
            "gone": "SELECT log.a, log.s, log.at FROM log JOIN (SELECT max(_commit_timestamp) AS moment "
            "FROM table_changes('t')) c ON log.at <= c.moment - INTERVAL '0.010' SECOND",
        },
        {"t": T},
        delete="gone",
    ),
    Task(
        "retention by the clock",
        {
            "v": "SELECT a, s, _commit_timestamp AS since FROM table_changes('t') WHERE _change_type = 'insert'",
            "gone": "SELECT * FROM log WHERE since + INTERVAL '0.010' SECOND < now()",
        },
        {"t": T},
        delete="gone",
    ),
    Task(
        "each value once",
        {"v": "SELECT DISTINCT a FROM table_changes('t') c WHERE NOT EXISTS (SELECT * FROM log WHERE log.a = c.a)"},
        {"t": T},
        columns=(Column("a", BIGINT),),
    ),
    Task(
        "a counter that reads itself",
        {"v": "SELECT CAST(coalesce(max(n), 0) + 1 AS BIGINT) AS n FROM log"},
        {"t": T},
        columns=(Column("n", BIGINT),),
    ),
    Task(
        "deleting more than there is",
        {
            "v": "SELECT a FROM table_changes('t') WHERE _change_type = 'insert' AND a IS NOT NULL",
            "gone": "SELECT a FROM t UNION ALL SELECT a FROM t",
        },
        {"t": T},
        delete="gone",
    ),
)

"""psycopg2's own tests before a whole system. Each passes, or is refused for the reason that a list gives."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.clients.test_pgwire import account, serving
from tests.e2e.system import System, wait_for
from tests.pgwire.psycopg2_suite.suite import REFUSALS, Refusals, outcomes

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.postgres, pytest.mark.slow]


def is_answered(connection: psycopg.Connection[Any]) -> bool:
    try:
        return connection.execute("SELECT 6 * 7").fetchone() == (42,)
    except psycopg.OperationalError:
        return False


def test_psycopg2s_own_tests_pass_but_for_what_is_refused(bare_system: System, tmp_path: Path) -> None:
    token = account(bare_system, "psycopg2")
    with serving(bare_system, tmp_path) as options:
        with psycopg.connect(**options, password=token) as connection:
            wait_for("the rights", lambda: connection.execute("SELECT count(*) FROM pg_class").fetchone())
            wait_for("the replica", lambda: is_answered(connection))
        found = outcomes({
            "PSYCOPG2_TESTDB": options["dbname"],
            "PSYCOPG2_TESTDB_HOST": options["host"],
            "PSYCOPG2_TESTDB_PORT": str(options["port"]),
            "PSYCOPG2_TESTDB_USER": options["user"],
            "PSYCOPG2_TESTDB_PASSWORD": token,
            "PGSSLMODE": options["sslmode"],
            "PGSSLROOTCERT": options["sslrootcert"],
        })  # fmt: skip
    (tmp_path / "outcomes.json").write_text(json.dumps({name: [each.kind, each.said] for name, each in found.items()}))
    differences = list(Refusals.read(REFUSALS.read_text()).differences(found))
    assert not differences, "\n".join(differences)
    counts = Counter(outcome.kind for outcome in found.values())
    assert counts["passed"] > 0, counts

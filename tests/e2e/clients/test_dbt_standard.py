"""dbt's own tests of adapters (`dbt/tests/functional`), before a whole system."""

from __future__ import annotations

import json
import re
from pathlib import Path

import psycopg
import pytest

from tests.dbt import environment
from tests.e2e.clients.test_pgwire import account, serving
from tests.e2e.system import System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]
SECONDS = 1500


def test_the_standard_tests_that_apply_pass(bare_system: System, tmp_path: Path) -> None:
    token = account(bare_system, "dbt-standard")
    with serving(bare_system, tmp_path) as options:
        with psycopg.connect(**options, password=token) as connection:
            wait_for("the rights", lambda: connection.execute("SELECT count(*) FROM pg_class").fetchone())
        profile = {
            "type": "tidemark",
            "threads": 4,
            "host": options["host"],
            "port": options["port"],
            "namespace": options["dbname"],
            "token": token,
            "sslrootcert": options["sslrootcert"],
        }
        run_pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/functional")
        variables = {"TIDEMARK_DBT_PROFILE": json.dumps(profile)}
        said = environment.run(*run_pytest, folder=environment.FOLDER, variables=variables, timeout=SECONDS)
        assert re.search(r"\b[1-9]\d* passed", said)

"""dbt's own tests of adapters, before a tidemark-pgwire that TIDEMARK_DBT_PROFILE describes (JSON).

dbt gives each test class a schema, and drops it. Here all classes share the schema of a namespace, one after the other,
and every Dataflow of the namespace is dropped: never point it at one with other objects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from dbt.adapters.tidemark.impl import TidemarkAdapter
from dbt.adapters.tidemark.relation import SCHEMA
from dbt_common.exceptions import DbtDatabaseError

pytest_plugins = ["dbt.tests.fixtures.project"]


def drop_everything(adapter: TidemarkAdapter, relation: Any) -> None:
    """Drop what nothing reads, until nothing is left."""
    schema = adapter.Relation.create(database=adapter.config.credentials.database, schema=SCHEMA)
    while left := adapter.list_relations_without_caching(schema):
        dropped = 0
        for each in left:
            try:
                adapter.drop_relation(each)
                dropped += 1
            except DbtDatabaseError as error:
                if "2BP01" not in str(error):
                    raise
        assert dropped, f"nothing of {left} can be dropped"
    adapter.cache.clear()


TidemarkAdapter.drop_schema = drop_everything


@pytest.fixture(scope="class")
def unique_schema() -> str:
    return SCHEMA


@pytest.fixture(scope="class")
def logs_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """dbt's own is in the checkout."""
    os.environ["DBT_LOG_PATH"] = folder = str(tmp_path_factory.mktemp("logs"))
    yield folder
    del os.environ["DBT_LOG_PATH"]


@pytest.fixture(scope="class")
def dbt_profile_target() -> dict[str, Any]:
    given: dict[str, Any] = json.loads(os.environ["TIDEMARK_DBT_PROFILE"])
    return given

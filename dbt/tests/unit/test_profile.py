"""Profiles, and errors with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from dbt.adapters.tidemark.connections import _described
from dbt.adapters.tidemark.credentials import TidemarkCredentials
from dbt_common.exceptions import DbtRuntimeError


def credentials(**given: Any) -> TidemarkCredentials:
    fields = {"host": "h", "namespace": "team", "token": "secret", **given}
    made: TidemarkCredentials = TidemarkCredentials.from_dict(TidemarkCredentials.translate_aliases(fields))
    return made


def test_a_connection_waits_and_is_verified() -> None:
    options = credentials(instance="etl").libpq()
    assert (options["dbname"], options["password"], options["sslmode"]) == ("team", "secret", "verify-full")
    settings = set(options["options"].removeprefix("-c ").split(" -c "))
    assert {"tidemark.wait=on", "tidemark.instance=etl", "statement_timeout=600s"} <= settings
    assert "tidemark.wait=off" in credentials(wait=False).libpq()["options"]


def test_the_token_is_shown_nowhere() -> None:
    made = credentials()
    assert "secret" not in repr(made)
    assert "secret" not in str(list(made.connection_info(with_aliases=True)))


def test_a_token_is_read_anew_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    made = credentials(token="", token_file=str(path))
    assert made.libpq()["password"] == "one"
    path.write_text("two\n")
    assert made.libpq()["password"] == "two"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"schema": "dbt_anne"}, "give each developer a namespace"),
        ({"token": ""}, "token or token_file"),
        ({"token_file": "t"}, "token or token_file"),
        ({"statement_seconds": 0}, "statement_seconds"),
    ],
)
def test_a_profile_that_cannot_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DbtRuntimeError, match=words):
        credentials(**given)


def test_errors_say_what_to_do() -> None:
    assert "run dbt again" in _described(psycopg.errors.QueryCanceled("canceling statement due to statement timeout"))
    assert "(SQLSTATE 42809)" in _described(psycopg.errors.WrongObjectType("no view"))

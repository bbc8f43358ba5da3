"""Clients' questions, answered by PostgreSQL and by the catalogue: the same columns, types and rows."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

import pytest

from tests.dialects.postgres import Postgres, programs
from tests.pg_catalogue.driver_statements import DRIVERS
from tests.pg_catalogue.samples import DATABASE, USER, Oracle
from tests.pg_catalogue.tool_statements import TOOLS

pytestmark = pytest.mark.postgres
CLIENTS = {**DRIVERS, **TOOLS}
EQUAL = (
    r"\d", r"\d orders", r"\d totals", r"\d recent", r"\d totals_key", r"\d nothing", r"\d+ orders", r"\dt", r"\dv",
    r"\dm", r"\di", r"\ds", r"\dE", r"\dt tot*", r"\dt public.*", r"\df", r"\dT", r"\dD", r"\dp", r"\dP", r"\dy",
    r"\dc", r"\do", r"\da", r"\dX", r"\drds", r"\det", r"\des", r"\dRp", r"\dd", r"\dO",
)  # fmt: skip
OTHER_ROWS = {
    r"\l": "other databases are not named",
    r"\dn": "public belongs to the owner of everything",
    r"\du": "the owner may not log in, and is no superuser",
    r"\dx": "there is no plpgsql",
    r"\dt+": "sizes are not known",
    r"\d+ totals": "definitions are not told",
    r"\db": "there is one tablespace",
    r"\dL": "there is no plpgsql",
    r"\dA": "there are heap and btree",
    r"\sv recent": "definitions are not told",
}
_SHOWN = re.compile(r"\*{9} QUERY \*{10}\n(.*?)\n\*{26}\n", re.DOTALL)


@pytest.fixture(scope="module")
def of_psql(both: tuple[Oracle, Postgres]) -> Mapping[str, Sequence[str]]:
    """The statements that psql sends for each of its commands, as its option -E shows."""
    _, server = both
    found_programs = programs()
    assert found_programs is not None
    commands = [*EQUAL, *OTHER_ROWS]
    script = "".join(f"\\echo <<{number}>>\n{command}\n" for number, command in enumerate(commands))
    done = subprocess.run(
        [found_programs / "psql", "-X", "-E", "-h", server.folder, "-p", str(server.port), "-U", USER, "-d", DATABASE],
        input=script,
        capture_output=True,
        text=True,
        check=True,
    )
    parts = re.split(r"<<\d+>>\n", done.stdout)[1:]
    return dict(zip(commands, ([sql.strip() for sql in _SHOWN.findall(part)] for part in parts), strict=True))


@pytest.mark.parametrize("command", EQUAL)
def test_oracle_psql(compared: Oracle, of_psql: Mapping[str, Sequence[str]], command: str) -> None:
    assert of_psql[command]
    for sql in of_psql[command]:
        assert compared.ours(sql) == compared.theirs(sql), sql


@pytest.mark.parametrize("command", OTHER_ROWS)
def test_oracle_columns_of_psql(compared: Oracle, of_psql: Mapping[str, Sequence[str]], command: str) -> None:
    """Where rows differ for a reason, names and types of columns are the same."""
    assert of_psql[command]
    for sql in of_psql[command]:
        ours, theirs = compared.ours(sql), compared.theirs(sql)
        assert (ours.names, ours.types) == (theirs.names, theirs.types), sql


@pytest.mark.parametrize("client", CLIENTS)
def test_oracle_clients(compared: Oracle, client: str) -> None:
    for sql, values in CLIENTS[client]:
        assert compared.ours(sql, *values) == compared.theirs(sql, *values), sql

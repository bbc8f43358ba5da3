"""Each code that an error of the data, or of SQL, can have is explained in the reference."""

from __future__ import annotations

import ast
import re

from psycopg.errors import lookup

from tests.tidy.checkout import ROOT, files, generated

PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text()
CODE = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
SQLSTATE = re.compile(r"[0-9A-Z]{5}")
NO_CODES = re.compile(
    r"(?:TIDEMARK|AWS|SPARK|PYSPARK|PYTHON|JAVA|SC|GRPC|MAX|OTEL)_.*|LC_ALL|UNRESOLVED_RELATION|IDENTIFY_SYSTEM|SQL_ASCII"
)
PARTS = ("protocol/*.py", "replica_image/tidemark_replica/kernels/*.py", "replica_image/tidemark_replica/storage/*.py")


def section(title: str) -> list[list[str]]:
    """The rows of the page's table below the heading, without its head."""
    lines = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return rows[2:]


def codes() -> set[str]:
    """Words in capitals among the strings of what computes and reads."""
    found = set()
    for path in files(*PARTS):
        if not generated(path):
            strings = (n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant))
            found |= {s for s in strings if isinstance(s, str) and CODE.fullmatch(s) and not NO_CODES.fullmatch(s)}
    return found


def test_every_code_is_explained() -> None:
    """With what happened, and what to do."""
    assert len(codes()) > 30
    assert sorted(code for code in codes() if f"`{code}`" not in PAGE) == []


def is_sqlstate(text: str) -> bool:
    """Whether PostgreSQL has the code."""
    try:
        lookup(text)
    except KeyError:
        return False
    return True


def sqlstates() -> set[str]:
    """The SQLSTATEs among the strings of the wire protocol, and of the gateway, whose refusals it passes on."""
    found = set()
    for path in files("pgwire/*.py", "operator/tidemark_operator/gateway/*.py"):
        strings = (n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant))
        found |= {s for s in strings if isinstance(s, str) and SQLSTATE.fullmatch(s) and is_sqlstate(s)}
    return found


def test_every_sqlstate_is_explained_once() -> None:
    """The table has no other ones: a code that is sent no more leaves it. Each row says what happened, what to do."""
    rows = section("SQLSTATEs")
    told = [code for row in rows for code in row[0].split(", ") if SQLSTATE.fullmatch(code)]
    assert len(told) > 60
    assert sorted(told) == sorted(sqlstates())
    assert [row for row in rows if not all(row)] == []


def test_every_status_of_the_gateway_is_explained() -> None:
    """Statuses that its code names; gRPC itself adds UNAVAILABLE and the like."""
    attributes = (
        n for path in files("operator/tidemark_operator/gateway/*.py") for n in ast.walk(ast.parse(path.read_text()))
    )
    statuses = {
        n.attr for n in attributes if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "grpc.StatusCode"
    }
    told = {status for row in section("Statuses of the gateway") if all(row[2:]) for status in row[0].split(", ")}
    assert len(statuses) > 6
    assert statuses - told == set()


def exits(*pattern: str) -> set[int]:
    found = set()
    for path in files(*pattern):
        for node in ast.parse(path.read_text()).body:
            match node:
                case ast.Assign([ast.Name(name)], ast.Constant(int(code))) if name.startswith("EXIT_"):
                    found.add(code)
    return found


def test_every_exit_code_is_explained() -> None:
    """The codes are of the processes that name theirs, by constants of the module that ends the process."""
    told: dict[str, set[int]] = {}
    process = ""
    for row in section("Exit codes"):
        process = row[0] or process
        told.setdefault(process, set()).update(int(code) for code in row[1].split(", "))
    assert exits("operator/tidemark_operator/main.py") | {0} == told["operator"]
    assert exits("replica_image/tidemark_replica/*.py") == told["replica"]
    assert exits("planner/tidemark_planner/__main__.py") | {1} == told["planner"]

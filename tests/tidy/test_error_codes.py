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
    section = PAGE.partition("## SQLSTATEs")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()[5:]]
    told = [code for row in rows for code in row[0].split(", ") if SQLSTATE.fullmatch(code)]
    assert len(told) > 60
    assert sorted(told) == sorted(sqlstates())
    assert [row for row in rows if len(row) == 3 and not all(row)] == []

"""Each code that an error of the data can have is explained in the reference."""

from __future__ import annotations

import ast
import re

from tests.tidy.checkout import ROOT, files, generated

PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text()
CODE = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
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

"""Each reason that the operator gives for a condition stands in the reference, with what to do.

The reasons are read off the code: words in CamelCase that are arguments of what makes conditions, refusals and
failures, and the planner's codes, which become reasons.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.checkout import ROOT, files
from tidemark_operator.resources.conditions.diagnostics import reason

PAGE = (ROOT / "docs" / "reference" / "conditions.md").read_text()
MAKERS = {
    *("yes", "no", "unknown", "_stopped"),
    *("Down", "IngestionFailure", "PlanRefused", "Rejected", "SecretProblem"),
}
REASON = re.compile(r"(?:[A-Z]+[a-z]+){1,8}")
CODE = re.compile(r"[A-Z]+(?:_[A-Z]+)*")
WAITED_FOR = "UNRESOLVED_RELATION"
"""The one code that is no refusal: WaitingForInputs."""


def calls(paths: tuple[Path, ...], names: set[str]) -> Iterator[ast.Call]:
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in names:
                yield node


def words(call: ast.Call) -> list[str]:
    """The first two arguments that are literals: a type and a reason, or a reason and a message."""
    return [node.value for node in call.args[:2] if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def given_by_the_operator() -> set[str]:
    found = {word for call in calls(files("operator/*.py"), MAKERS) for word in words(call)}
    return {word for word in found if REASON.fullmatch(word)}


def given_by_the_planner() -> set[str]:
    paths = (*files("planner/*.py"), *files("operator/*/planning/*.py"))
    found = {word for call in calls(paths, {"refuse", "refused", "Diagnostic"}) for word in words(call)[:1]}
    return {reason(code) for code in found if CODE.fullmatch(code) and code != WAITED_FOR}


def test_every_reason_is_explained() -> None:
    """A reason that is added has a row that says what happened, and what to do."""
    operator, planner = given_by_the_operator(), given_by_the_planner()
    assert len(operator) > 35
    assert len(planner) > 8
    assert {word for word in operator | planner if f"`{word}`" not in PAGE} == set()


def test_every_reason_of_a_failure_names_the_event() -> None:
    """Its row has the status False, the reason, and in the cell before the last what happened."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")]
    failures = [row for row in rows if "False" in row and row[-3].startswith("`") and row[-3] != "`NoErrors`"]
    assert len(failures) > 50
    assert [row for row in failures if not row[-2]] == []

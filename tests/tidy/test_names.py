"""Names in the product: a public class has one of its own, and none of a function is a mood (docs/decisions/0089)."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from tests.tidy.checkout import ROOT, files, generated, name

OUTSIDE = {"tests", "bench", "examples", "tools"}
HOMONYMS = {
    "an operator of a plan, at each level of plans": (
        "FlatMap Join Let LetRec Negate Project Threshold TopK Union Window"
    ),
    "a part of a plan, and what runs it": "ContinualTaskSink CopyToSink JoinStage MaterializedViewSink SubscribeSink",
    "one thing on both sides of the wire, or of a layer": (
        "BodyDecoder Catalogue Copies Dataflow DiffOverflow Executors Gateway HydrationProgress Ingester OperatorCost "
        "Recomputation RelationChanged ShardDeleted Subscribes WriteRefused WriteUnknown"
    ),
    "the leaf of a pipeline, and what a DataSource names: drawn so in the docs": "Source",
}
"""By reason, the names that several classes have."""
MOODS = set(
    "again ahead alive alone answered asked awaits back begun behind beside both closed ended found given gone heard "
    "held here kept known later least left less lost met missed most needed none others over piece rest same spent "
    "stopped taken there those through together told wanted whole where within without wrong".split()
)
"""Words that say neither what a function does nor what it returns."""


def _product() -> Iterator[tuple[str, ast.Module]]:
    """Yield (path from the root, syntax tree) of each file of the product."""
    for path in files("*.py"):
        if not generated(path) and not OUTSIDE & set(path.relative_to(ROOT).parts):
            yield name(path), ast.parse(path.read_text())


def _public_classes() -> dict[str, set[str]]:
    """By name, the files of the product that have a class of this name."""
    found = defaultdict[str, set[str]](set)
    for path, tree in _product():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].add(path)
    return found


def test_a_class_has_a_name_of_its_own() -> None:
    """Other classes of one name are listed with the reason. A name that one class has is not in the list any more."""
    found = _public_classes()
    assert len(found) > 1_000
    listed = list(chain.from_iterable(names.split() for names in HOMONYMS.values()))
    assert len(set(listed)) == len(listed)
    assert {each: sorted(at) for each, at in found.items() if len(at) > 1 and each not in listed} == {}, (
        "give each class its full noun (docs/decisions/0089)"
    )
    assert [each for each in listed if len(found[each]) < 2] == [], "take these names off the list"


def test_no_function_is_named_after_a_mood() -> None:
    """A function has a verb for what it does, or a noun for what it returns."""
    functions = [
        (path, node.lineno, node.name)
        for path, tree in _product()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(functions) > 5_000
    assert [each for each in functions if each[2].strip("_") in MOODS] == [], (
        "name it after what it does or returns (docs/decisions/0089)"
    )

"""A public class has a name of its own in the product (docs/decisions/0089)."""

from __future__ import annotations

import ast
from collections import defaultdict
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


def _public_classes() -> dict[str, set[str]]:
    """By name, the files of the product that have a class of this name."""
    found = defaultdict[str, set[str]](set)
    for path in files("*.py"):
        if generated(path) or OUTSIDE & set(path.relative_to(ROOT).parts):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].add(name(path))
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

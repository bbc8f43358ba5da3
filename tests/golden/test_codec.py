"""Values that an earlier version encoded decode to the same ones, which have the same bytes and digests.

    members.tsv       wire name, digest, bytes          one value or more of each dataclass: values.py, in its order
    plans.tsv         name, digest, identity, bytes     stored revisions of Dataflows, as the planner planned them
    vocabulary.json   the wire names of dataclasses, their fields and the defaults

A line of these files never changes. Replicas, stored plans and digests of earlier versions hold the same bytes.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.golden.values import COLUMN, MEMBERS
from tidemark_operator.planning.revision import DataflowRevision
from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.expr import ColumnRef
from tidemark_protocol.types import BIGINT
from tidemark_protocol.vocabulary import VOCABULARY, WIRE_NAME, WireEntry, entry_of, wire_name, wire_name_of


@wire_name("test.Renamed")
@dataclasses.dataclass(frozen=True)
class Anything:
    number: int = dataclasses.field(metadata={WIRE_NAME: "count"})
    label: str = dataclasses.field(default="", metadata={WIRE_NAME: "name"})


HERE = Path(__file__).parent
VOCABULARY_CHANGED = """the vocabulary differs from tests/golden/vocabulary.json:
{changes}
Where a class or an attribute was renamed: keep its wire name, with @wire_name("...") or
field(metadata={{WIRE_NAME: "..."}}).
Where something was added: new fields need a default; write the line above into vocabulary.json, a value into
values.py and its line into members.tsv. A plan that uses it needs a word in plan/plan_features.py.
Where something was removed, or has another default: stored plans cannot be read any more, or mean something else.
Keep it, or change the format and add a line to CHANGELOG.md."""


class Line(NamedTuple):
    name: str
    digest: str
    encoded: bytes


def lines(file: str) -> list[list[str]]:
    return [line.split("\t") for line in (HERE / file).read_text().splitlines()]


GOLDEN = [Line(name, digest, encoded.encode()) for name, digest, encoded in lines("members.tsv")]
PLANS = lines("plans.tsv")


def line_of(value: Any) -> str:
    return "\t".join((wire_name_of(type(value)), codec.digest(value), codec.encode(value).decode()))


def test_every_value_has_its_line() -> None:
    """The line of a new value is added by hand; from then on it is frozen."""
    assert len(MEMBERS) >= len(GOLDEN), "values.py has fewer values than members.tsv has lines: none is ever removed"
    new = "\n".join(map(line_of, MEMBERS[len(GOLDEN) :]))
    assert not new, f"append to tests/golden/members.tsv what is to be frozen:\n{new}"


@pytest.mark.parametrize(
    ("line", "value"), list(zip(GOLDEN, MEMBERS, strict=False)), ids=[line.name for line in GOLDEN]
)
def test_a_dataclass_is_read_and_written_as_before(line: Line, value: Any) -> None:
    """Bytes, digest, and the value with all of its fields."""
    assert codec.encode(value) == line.encoded
    assert codec.digest(value) == line.digest
    assert codec.decode(line.encoded, type(value)) == value
    assert wire_name_of(type(value)) == line.name


def test_the_values_use_all_of_the_vocabulary() -> None:
    """Each field of each dataclass is in the bytes of some value, so none of them may be renamed unnoticed."""
    used: dict[str, set[str]] = {}
    for line in GOLDEN:
        fields: dict[str, Any] = json.loads(line.encoded)
        used.setdefault(fields.pop("@"), set()).update(fields)
    golden = json.loads((HERE / "vocabulary.json").read_text())
    assert used == {name: {*entry["required"], *entry["defaults"]} for name, entry in golden.items()}


@pytest.mark.parametrize(("name", "digest", "identity", "encoded"), PLANS, ids=[name for name, *_ in PLANS])
def test_a_stored_plan_is_the_same_plan(name: str, digest: str, identity: str, encoded: str) -> None:
    """Its bytes, its digest, and the identity that decides whether a replica keeps what it has computed."""
    revision = codec.decode(encoded.encode(), DataflowRevision)

    assert revision.description.name == name
    assert codec.encode(revision) == encoded.encode()
    assert codec.digest(revision) == digest
    assert revision.description.plan_digest == identity


def test_the_vocabulary_is_as_it_was() -> None:
    """Wire names, fields and defaults."""
    golden = json.loads((HERE / "vocabulary.json").read_text())
    present = {entry.wire_name: described(entry) for cls, entry in VOCABULARY.items() if "tidemark_" in cls.__module__}
    changed = sorted(name for name in {*golden, *present} if golden.get(name) != present.get(name))
    changes = "\n".join(f"was {written(n, golden)}\nis  {written(n, present)}" for n in changed)
    assert not changed, VOCABULARY_CHANGED.format(changes=changes)


def described(entry: WireEntry) -> dict[str, Any]:
    required = [m.wire_name for m in entry.members if m.default is dataclasses.MISSING]
    defaults = {m.wire_name: plain(m.default) for m in entry.members if m.default is not dataclasses.MISSING}
    return {"required": required, "defaults": defaults}


def plain(default: Any) -> Any:
    return json.loads(codec.encode(default))


def written(name: str, vocabulary: dict[str, Any]) -> str:
    return f'"{name}": {json.dumps(vocabulary[name])}' if name in vocabulary else "nothing"


def test_classes_and_attributes_may_be_renamed() -> None:
    """Bytes hold wire names alone, in both directions."""
    encoded = b'{"@":"test.Renamed","count":7,"name":"x"}'

    assert codec.encode(Anything(7, "x")) == encoded
    assert codec.decode(encoded, Anything) == Anything(number=7, label="x")
    with pytest.raises(MalformedPlan, match=r"test\.Renamed has no field 'number'"):
        codec.decode(b'{"@":"test.Renamed","number":7}', Anything)
    with pytest.raises(TypeError, match="belongs to"):
        wire_name("test.Renamed")(ColumnRef)


def test_a_dataclass_without_a_wire_name_is_refused() -> None:
    """Also one that is derived from another that has one, and one that an annotation names."""

    @dataclasses.dataclass(frozen=True)
    class Derived(ColumnRef):
        pass

    with pytest.raises(TypeError, match=r"Derived has no wire name .* decorate the dataclass with @wire_name"):
        codec.encode((COLUMN, Derived(0, BIGINT)))
    with pytest.raises(TypeError, match="Derived has no wire name"):
        codec.decode(b"{}", Derived)


def test_an_ambiguous_encoding_gets_no_wire_name() -> None:
    """Two fields of one name; a default that is made anew each time."""

    @dataclasses.dataclass(frozen=True)
    class Twice:
        a: int
        b: int = dataclasses.field(metadata={WIRE_NAME: "a"})

    @dataclasses.dataclass(frozen=True)
    class Made:
        a: tuple[int, ...] = dataclasses.field(default_factory=tuple)

    with pytest.raises(TypeError, match="two fields"):
        wire_name("test.Twice")(Twice)
    with pytest.raises(TypeError, match="default factory"):
        wire_name("test.Made")(Made)
    with pytest.raises(TypeError, match="no wire name"):
        entry_of(Twice)

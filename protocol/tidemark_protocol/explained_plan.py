"""A plan for people, as a tree of operators, and its forms: text, JSON, and a picture in Mermaid's language.

text      Join linear: 0 → 1 on [k = k] keep [s | y]        mermaid    n1["Join linear: ...<br/>incremental: ..."]
              incremental: a change meets the rows ...                 n2["Get s.t<br/>about ... rows"] --> n1
            Get s.t (about 1,048,576 rows)                             n3["Get s.u"] --> n1
            Get s.u
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark_protocol.plan.change_costs import Upkeep

MANIFEST_CHARACTERS = 1 << 20
"""The characters of a manifest that is explained, at most: about as many as the API server stores."""
OUTPUTS = ("text", "json", "mermaid")
_MOST_SHOWN = 160
"""Characters of an operator in a picture."""


@dataclass(frozen=True)
class MeasuredOperator:
    """An operator on a replica, under its name there: the rows and bytes that it holds, and its time since the dataflow
    was rendered."""

    replica: str
    name: str
    records: int
    batches: int
    bytes: int
    elapsed_ms: int

    @property
    def text(self) -> str:
        """One line."""
        rows, batches = (_counted(*each) for each in ((self.records, "row"), (self.batches, "batch")))
        holds = f"holds {rows} in {batches} of {self.bytes:,} bytes, " if self.batches else ""
        return f"on {self.replica} {self.name} {holds}has worked for {self.elapsed_ms:,} ms"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what if count == 1 else {'row': 'rows', 'batch': 'batches'}[what]}"


PlaceInPlan = tuple[int, int]
"""The position of an object, and the number of an operator there, in the order of the text."""


@dataclass(frozen=True)
class ExplainedOperator:
    """An operator. `rows`: an estimate, None: unknown. `details`: lines below its own. `bindings`: what is computed
    first, each with its heading. `reads`: the collection that it reads. `upkeep`: how it is kept true, and its
    cost; text and pictures leave out that of operators without state. `number`: its place in the plan. `measured`:
    what it is on replicas."""

    text: str
    inputs: tuple[ExplainedOperator, ...] = ()
    rows: int | None = None
    details: tuple[str, ...] = ()
    bindings: tuple[tuple[str, ExplainedOperator], ...] = ()
    reads: str = ""
    upkeep: Upkeep | None = None
    number: int | None = None
    measured: tuple[MeasuredOperator, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The details, the upkeep of what keeps state, and what was measured."""
        upkeep = () if self.upkeep is None or self.upkeep.is_stateless else (self.upkeep.text,)
        return (*self.details, *upkeep, *(each.text for each in self.measured))

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of the operator and of all below it."""
        own = frozenset(() if self.number is None else (self.number,))
        return own.union(*(each.numbers for each in (*self.inputs, *(value for _, value in self.bindings))))

    def with_measured(self, found: Mapping[PlaceInPlan, tuple[MeasuredOperator, ...]], at: int) -> ExplainedOperator:
        """The operators of object `at` with what was found of them."""
        return replace(
            self,
            inputs=tuple(below.with_measured(found, at) for below in self.inputs),
            bindings=tuple((heading, value.with_measured(found, at)) for heading, value in self.bindings),
            measured=() if self.number is None else found.get((at, self.number), ()),
        )


@dataclass(frozen=True)
class ExplainedPlan:
    """Lines about imports, objects by their ids in the order in which they are built, lines about exports, and notes
    about the plan as a whole."""

    imports: tuple[str, ...]
    objects: tuple[tuple[str, ExplainedOperator], ...]
    exports: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def form(self, output: str) -> str:
        """The plan as `output`, one of OUTPUTS."""
        forms = {"text": self.text, "json": self.json, "mermaid": self.mermaid}
        return forms[output]()

    def has(self, place: PlaceInPlan) -> bool:
        """Whether there is such an operator."""
        at, number = place
        return 0 <= at < len(self.objects) and number in self.objects[at][1].numbers

    def with_measured(self, found: Mapping[PlaceInPlan, tuple[MeasuredOperator, ...]]) -> ExplainedPlan:
        """The plan whose operators have what was found of them."""
        objects = tuple((id, root.with_measured(found, at)) for at, (id, root) in enumerate(self.objects))
        return replace(self, objects=objects)

    def text(self) -> str:
        parts = [f"{line}\n" for line in self.imports]
        for id, root in self.objects:
            parts.append(f"\n{id} =\n" + "\n".join(lines(root)) + "\n")
        for below in (self.exports, self.notes):
            parts += ["\n"] * bool(below) + [f"{line}\n" for line in below]
        return "".join(parts).lstrip("\n")

    def json(self) -> str:
        """`imports`, `exports` and `notes` as in the text; an operator without estimates has no `rows`."""
        objects = [{"id": id, "plan": _object(root)} for id, root in self.objects]
        document = {"imports": self.imports, "objects": objects, "exports": self.exports}
        document |= {"notes": self.notes} if self.notes else {}
        return json.dumps(document, indent=2) + "\n"

    def mermaid(self) -> str:
        """A flow chart: rows flow along arrows; dotted ones lead from an object to its readers."""
        return "\n".join(["flowchart BT", *_Chart().lines(self)]) + "\n"


def lines(operator: ExplainedOperator, depth: int = 0) -> Iterator[str]:
    """One operator per line, inputs indented below."""
    pad = "  " * depth
    about = "" if operator.rows is None else f" (about {operator.rows:,} rows)"
    yield f"{pad}{operator.text}{about}"
    yield from (f"{pad}    {detail}" for detail in operator.notes)
    for heading, value in operator.bindings:
        if heading:
            yield f"{pad}  {heading}"
        yield from lines(value, depth + 2)
    if operator.bindings:
        yield f"{pad}in"
    for below in operator.inputs:
        yield from lines(below, depth + 1)


def _object(operator: ExplainedOperator) -> dict[str, Any]:
    made: dict[str, Any] = {"operator": operator.text}
    if operator.rows is not None:
        made["rows"] = operator.rows
    if operator.details:
        made["details"] = operator.details
    if (upkeep := operator.upkeep) is not None:
        cost = {} if upkeep.rows is None else {"rows": upkeep.rows}
        made["upkeep"] = {"how": upkeep.how, **cost, "per": upkeep.per, "why": upkeep.why}
    if operator.measured:
        made["measured"] = [asdict(each) for each in operator.measured]
    if operator.bindings:
        made["bindings"] = [{"name": heading, "plan": _object(value)} for heading, value in operator.bindings]
    if operator.inputs:
        made["inputs"] = [_object(below) for below in operator.inputs]
    return made


@dataclass
class _Chart:
    """Numbers operators, and knows which one an object is."""

    count: int = 0
    objects: dict[str, int] = field(default_factory=dict)

    def lines(self, plan: ExplainedPlan) -> Iterator[str]:
        for at, (id, root) in enumerate(plan.objects):
            yield f'  subgraph o{at}["{_label(id)}"]'
            links = list[str]()
            for line in self._operator(root, links):
                yield f"    {line}"
            yield "  end"
            yield from (f"  {link}" for link in links)
            self.objects[id] = self.count - 1

    def _operator(self, operator: ExplainedOperator, links: list[str]) -> Iterator[str]:
        """The inputs, then the operator: the last one of an object is its root."""
        below = list[int]()
        for each in (*(value for _, value in operator.bindings), *operator.inputs):
            yield from self._operator(each, links)
            below.append(self.count - 1)
        own, self.count = self.count, self.count + 1
        about = "" if operator.rows is None else f"<br/>about {operator.rows:,} rows"
        details = "".join(f"<br/>{_label(detail)}" for detail in operator.notes)
        yield f'n{own}["{_label(operator.text)}{details}{about}"]'
        yield from (f"n{each} --> n{own}" for each in below)
        if operator.reads in self.objects:
            links.append(f"n{self.objects[operator.reads]} -.-> n{own}")


def _label(text: str) -> str:
    """The text in a label, where Mermaid knows characters by their numbers."""
    shown = text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"
    return re.sub(r"[^\w\s.,:=()\[\]+*/→|'-]|[\n\r]", lambda found: f"#{ord(found[0])};", shown)

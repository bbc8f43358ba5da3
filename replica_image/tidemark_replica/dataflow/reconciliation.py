"""What a reconnecting controller asks for against what this replica has: reuse, drop, create.

A dataflow is reused, nothing of it computed anew, if

    1. the same exports are wanted, with the same plan digest, and its as_of is not later than the one wanted;
    2. none of its exports has been dropped, or compacted past the wanted as_of, unless the client says itself that
       this export may be compacted so far: of an index and a view, the view's since runs ahead;
    3. it still reads nothing before the wanted as_of: only from there on does the controller hold its inputs;
    4. it exports no subscribe and no copy-to: their output belongs to the client that asked;
    5. every index it imports is itself reused;
    6. its views may go on under the terms that they have, and none is seen to have written their tables since: under
       another term, another revision may have.

Else it is dropped, silently, and the wanted one is created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.plan.dataflow import ClientSink, DataflowDescription, MaterializedViewSink

ExportIds = frozenset[GlobalId]
Terms = Mapping[GlobalId, WriterTerm]
NO_TERMS: Terms = {}


@dataclass(frozen=True)
class Candidate:
    """A dataflow that is here: `since` is how far each of its exports was compacted, empty if dropped; `reads_from` the
    earliest time of its inputs that it still needs; `terms` those under which it may write; `overtaken`: another
    revision has written the table of one of its views since it had, so that it cannot go on there."""

    description: DataflowDescription
    since: Mapping[GlobalId, Frontier]
    reads_from: Frontier
    terms: Terms = field(default_factory=dict)
    superseded: bool = False


@dataclass(frozen=True)
class Verdict:
    """What becomes of a wanted dataflow; `reason` is None where it is reused."""

    wanted: DataflowDescription
    reason: str | None

    @property
    def reused(self) -> bool:
        return self.reason is None


def export_set(description: DataflowDescription) -> ExportIds:
    return frozenset(description.export_ids)


def reconcile(
    installed: Iterable[Candidate],
    wanted: Sequence[DataflowDescription],
    allowed: Mapping[GlobalId, Frontier],
    terms: Terms = NO_TERMS,
) -> tuple[Verdict, ...]:
    """A verdict per wanted dataflow, in their order; an installed one that no verdict reuses is to be dropped.
    `allowed`: how far the client says that exports may be compacted, where that is beyond their as_of. `terms`: under
    which it says that they may be written."""
    old = {export_set(i.description): i for i in installed}
    reused: set[GlobalId] = set()
    verdicts = []
    for new in wanted:
        reason = _obstacle(old.get(export_set(new)), new, reused, allowed, terms)
        if reason is None:
            reused |= export_set(new)
        verdicts.append(Verdict(new, reason))
    return tuple(verdicts)


def _obstacle(
    old: Candidate | None,
    new: DataflowDescription,
    reused: set[GlobalId],
    allowed: Mapping[GlobalId, Frontier],
    terms: Terms,
) -> str | None:
    if old is None:
        return "missing"
    if old.description.plan_digest != new.plan_digest or old.description.as_of > new.as_of:
        return "incompatible"
    as_of = Frontier.at(new.as_of)
    if any(since.is_empty or since > max(as_of, allowed.get(id, as_of)) for id, since in old.since.items()):
        return "compacted"
    if old.reads_from < as_of:
        return "behind"
    if any(isinstance(e.sink, ClientSink) for e in new.sink_exports):
        return "subscribe"
    if not {i.id for i in new.index_imports} <= reused:
        return "dependency"
    views = [e.id for e in new.sink_exports if isinstance(e.sink, MaterializedViewSink)]
    if old.superseded or any(id in old.terms and terms.get(id, old.terms[id]) != old.terms[id] for id in views):
        return "term"
    return None

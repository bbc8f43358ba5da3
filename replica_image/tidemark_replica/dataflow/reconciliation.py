"""Compares a new controller's dataflows with the installed ones: reuse, drop, create.

A dataflow is reused, and nothing is computed again, if

    1. the same exports are wanted, with the same plan digest, and its as_of is not later than the wanted one;
    2. none of its exports is dropped or compacted past the wanted as_of, unless the client allows it to be compacted so
       far (the since of an index or a view runs ahead of the as_of);
    3. it reads no times before the wanted as_of: the controller holds its inputs only from there on;
    4. it exports no subscribe and no copy: their output belongs to the client that asked;
    5. every index that it imports is reused;
    6. its views keep their terms, and no other revision has written their tables;
    7. no other program has changed a table that it reads or writes.

Otherwise the dataflow is dropped without a report, and the wanted one is created.
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
class ReuseCandidate:
    """An installed dataflow. `since`: of each export, empty if dropped. `reads_from`: the earliest time that it needs
    of its inputs. `terms`: the writer terms of its exports. `superseded`: another revision has written the table of one
    of its views. `outdated`: another program has changed a table of it."""

    description: DataflowDescription
    since: Mapping[GlobalId, Frontier]
    reads_from: Frontier
    terms: Terms = field(default_factory=dict)
    superseded: bool = False
    outdated: bool = False


@dataclass(frozen=True)
class ReuseDecision:
    """The decision about a wanted dataflow. `reason` says why it is created anew; None: it is reused."""

    wanted: DataflowDescription
    reason: str | None

    @property
    def reused(self) -> bool:
        return self.reason is None


def export_set(description: DataflowDescription) -> ExportIds:
    return frozenset(description.export_ids)


def reconcile(
    installed: Iterable[ReuseCandidate],
    wanted: Sequence[DataflowDescription],
    allowed: Mapping[GlobalId, Frontier],
    terms: Terms = NO_TERMS,
) -> tuple[ReuseDecision, ...]:
    """One verdict per wanted dataflow, in their order. Installed dataflows that no verdict reuses are to be dropped.
    `allowed`: how far the client allows exports to be compacted. `terms`: the writer terms that the client gives."""
    old = {export_set(i.description): i for i in installed}
    reused: set[GlobalId] = set()
    verdicts = []
    for new in wanted:
        reason = _obstacle(old.get(export_set(new)), new, reused, allowed, terms)
        if reason is None:
            reused |= export_set(new)
        verdicts.append(ReuseDecision(new, reason))
    return tuple(verdicts)


def _obstacle(
    old: ReuseCandidate | None,
    new: DataflowDescription,
    reused: set[GlobalId],
    allowed: Mapping[GlobalId, Frontier],
    terms: Terms,
) -> str | None:
    if old is None:
        return "missing"
    if old.outdated:
        return "outdated"
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

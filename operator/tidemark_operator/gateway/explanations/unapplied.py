"""Explains Dataflows that are not applied: those of manifests, and the one that a CREATE of SQL would make.

    manifests ──► parsed ──► planned one after the other, as if those before were applied ──► explained
                             one that reads another of the manifests waits for its turn

Each is planned as its reconcile would: by the row counts of the revision that an edit follows, over the tables and
indexes that there are. The exports of a planned one stand in the catalogue for the next, under ids that nothing else
has. Nothing is stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemark_operator.catalogue.dataflow_state import DataflowSpec, DataflowState, RevisionSet
from tidemark_operator.catalogue.relations import parents
from tidemark_operator.catalogue.replacement_closure import as_replaced, joins
from tidemark_operator.catalogue.row_counts import counts_of_now
from tidemark_operator.errors import DefinitionRefused, QueryRefused, StatementRefused
from tidemark_operator.gateway.admission.planner_admission import check_length
from tidemark_operator.gateway.auth.rights import refusal
from tidemark_operator.gateway.definitions.definition import ExportDefinition, require_name
from tidemark_operator.gateway.definitions.refusals import absent, exists, of_api_error
from tidemark_operator.gateway.definitions.shared_source import instance_of
from tidemark_operator.gateway.explanations.draft_plan import DraftPlan, PlanAsker, draft_of
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.revisions.current_row_counts import current_row_counts
from tidemark_operator.handlers.revisions.plan_revision import followed
from tidemark_operator.handlers.revisions.planner_requests import named_in, outcome_of_refusal, plan_request
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS, ApiError, Body
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision
from tidemark_operator.resources.conditions.dataflow import WaitingForInputs
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_operator.resources.manifest.meta import REPLAN
from tidemark_protocol.explained_plan import MANIFEST_CHARACTERS, ExplainedPlan
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Planned, PlanRequest, Refused

MAX_MANIFESTS = 64
MAX_PARTS = 32
"""The views, and the exports, of a manifest: as the CRD has it."""


async def explain_manifests(asker: PlanAsker, manifests: Sequence[str]) -> list[tuple[str, ExplainedPlan]]:
    """The plan of each Dataflow with its name, in the order of the manifests, as if all of them were applied.

    Raises:
        QueryRefused: a manifest cannot be read, or its Dataflow would be refused, or would wait for its inputs.
        TooMany, PlannerUnavailable: the planner has too many statements, or does not answer.
        ReviewUnavailable: a right of the caller cannot be checked.
    """
    if len(manifests) > MAX_MANIFESTS:
        raise QueryRefused(f"{len(manifests)} Dataflows are explained at once, more than the limit of {MAX_MANIFESTS}")
    dataflows = [_parsed(asker.context, asker.namespace, _body(text)) for text in manifests]
    names = [dataflow.meta.name for dataflow in dataflows]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise QueryRefused(f"two manifests have the name {twice[0]}")
    drafts = _Drafts(asker)
    left, waits, whys = dataflows, dict[str, set[str]](), dict[str, _InputsMissing]()
    while left:
        put_off = list[Dataflow]()
        for at, dataflow in enumerate(left):
            name, others = dataflow.meta.name, {each.meta.name for each in (*put_off, *left[at + 1 :])}
            if waits.get(name, set()) & others:  # a plan of it would be put off again
                put_off.append(dataflow)
                continue
            try:
                waits[name] = await drafts.add(dataflow, others)
                whys.pop(name, None)
            except _InputsMissing as missing:
                waits[name], whys[name] = others & missing.parents, missing
                if not waits[name]:
                    raise
            if waits[name]:
                put_off.append(dataflow)
        if len(put_off) == len(left):
            circle = ", ".join(dataflow.meta.name for dataflow in put_off)
            raise next(iter(whys.values()), None) or QueryRefused(
                f"the Dataflows {circle} would be refused (Cycle): they read each other"
            )
        left = put_off
    return [(name, drafts.explained[name]) for name in names]


async def explain_definition(asker: PlanAsker, request: Any) -> ExplainedPlan:
    """The plan of the Dataflow that the definition (DefineRequest) would create, or edit.

    Raises:
        DefinitionRefused, StatementRefused: it cannot be as asked.
        QueryRefused, TooMany, PlannerUnavailable, ReviewUnavailable: as `explain_manifests`.
    """
    definition, context, namespace = ExportDefinition.parse(request), asker.context, asker.namespace
    if definition.namespace != namespace:
        raise QueryRefused(f"the definition is of namespace {definition.namespace}, not of {namespace}")
    check_length(definition.sql)
    try:
        found = await context.kube.get(DATAFLOWS, namespace, definition.name)
    except ApiError as error:
        raise of_api_error(error) from None
    if found is None and request.action == "replace":
        raise absent(definition.name, definition.kind)
    if found is not None and request.action == "create":
        raise exists(definition.name)
    if found is None:
        spec = definition.spec(instance_of(context, definition, request.instance))
    else:
        spec = _merged(found["spec"], definition.patch(found))
    body = {"metadata": {"name": definition.name}, "spec": spec}
    try:
        dataflow = _parsed(context, namespace, body)
    except QueryRefused as refused:  # an option's value that the CRD refuses
        raise DefinitionRefused("22023", str(refused)) from None
    drafts = _Drafts(asker)
    planned, asked = await drafts.ask(dataflow)
    if isinstance(planned, Refused):
        raise refusal(planned)
    return drafts.noted(dataflow, await drafts.draft(dataflow, planned, asked))


class _InputsMissing(StatementRefused):
    """The Dataflow names what does not exist: another manifest may make it. `parents`: the names of that."""

    parents: frozenset[str] = frozenset()


class _Drafts:
    """The Dataflows of a namespace as they would be with those that were added."""

    def __init__(self, asker: PlanAsker) -> None:
        self._asker, self._context, self._namespace = asker, asker.context, asker.namespace
        self._made: dict[str, DataflowState] = {}
        self.explained: dict[str, ExplainedPlan] = {}

    async def add(self, dataflow: Dataflow, others: set[str]) -> set[str]:
        """Plan the Dataflow, and have the next ones read it so. `others`: those that are not added yet. Returns
        those of them that it reads: then it is not added. Raises _InputsMissing, and as `explain_manifests`."""
        planned, request = await self.ask(dataflow)
        if isinstance(planned, Refused):
            raise _refusal(dataflow, planned)
        reads = parents(self._context.registry.sources(self._namespace), self._reading(dataflow), planned.references)
        if waits := {parent.name for parent in reads if parent.kind == DATAFLOWS.kind} & others:
            return waits  # first: it may be a circle with the other one as it is now
        draft = await self.draft(dataflow, planned, request)
        revision = DataflowRevision(draft.description, draft.exports, draft.reads, draft.identity, 0, "")
        mark = ActiveRevision("", 0, 0, "", revision)
        state = self._state(dataflow)
        self._made[state.key.name] = replace(state, revisions=RevisionSet(mark))
        self.explained[state.key.name] = self.noted(dataflow, draft)
        return set()

    async def ask(self, dataflow: Dataflow) -> tuple[Planned | Refused, PlanRequest]:
        """The planner's answer, and its request."""
        active, rows = self._state(dataflow).active, self._rows(dataflow)
        if active is not None:
            rows = counts_of_now(active.revision, rows)
        follows = followed({}, active, "", dataflow.replan)
        sources = self._context.registry.sources(self._namespace)
        request = plan_request(dataflow, sources, self._reading(dataflow), follows, rows)
        return await self._asker.plan(request, "apply", request.dataflow), request

    async def draft(self, dataflow: Dataflow, planned: Planned, request: PlanRequest) -> DraftPlan:
        """The plan as it would be. Raises QueryRefused, ReviewUnavailable."""
        reading, doing = self._reading(dataflow), f"Dataflow {dataflow.meta.name}"
        reads = {id for state in self._made.values() if state.active for id in state.active.revision.relations}
        begins = reads.isdisjoint(planned.references)
        given = self._asker, dataflow, self._state(dataflow), planned, request
        return await draft_of(*given, reading=reading, dataflows=self._with_made(), doing=doing, begins=begins)

    def noted(self, dataflow: Dataflow, draft: DraftPlan) -> ExplainedPlan:
        """The plan, with a note on what applying it would change."""
        name, notes = dataflow.meta.name, draft.explained.notes
        made = [
            f"{p.name} as its manifest has it" for p in draft.reads if p.kind == DATAFLOWS.kind and p.name in self._made
        ]
        reads = (f"reads {', '.join(made)}",) if made else ()
        if self._state(dataflow).active is None or draft.same is None:
            return replace(draft.explained, notes=(*reads, *notes))
        then = f"Dataflow {name} has another plan: this one would hydrate beside it, and take over"
        if draft.same:
            then = f"Dataflow {name} has this plan: applying the manifest would compute nothing anew"
        return replace(draft.explained, notes=(*reads, then, *notes))

    def _state(self, dataflow: Dataflow) -> DataflowState:
        """The Dataflow as it is, with the fields of the manifest."""
        key = Key(DATAFLOWS, self._namespace, dataflow.meta.name)
        as_of = None if dataflow.as_of is None else int(dataflow.as_of)
        state = self._context.registry.dataflow(key)
        if state is None:
            return DataflowState(key, dataflow.meta.uid, dataflow.instance, DataflowSpec(as_of=as_of))
        return replace(state, spec=replace(state.spec, as_of=as_of))

    def _with_made(self) -> list[DataflowState]:
        others = self._context.registry.dataflows(self._namespace)
        return [*(each for each in others if each.key.name not in self._made), *self._made.values()]

    def _reading(self, dataflow: Dataflow) -> list[DataflowState]:
        """The Dataflows as the plan of this one reads them."""
        dataflows = self._with_made()
        state = self._context.registry.dataflow(self._state(dataflow).key)
        return as_replaced(dataflows, None if state is None else joins(state, dataflows))

    def _rows(self, dataflow: Dataflow) -> dict[GlobalId, int | None]:
        """The row counts of now; those of exports that were added are those of the same names before."""
        rows = current_row_counts(self._context, self._namespace, named_in(dataflow).lower())
        for state in self._made.values():
            before = self._context.registry.dataflow(state.key)
            if before is not None and before.active is not None and state.active is not None:
                counted = {name: rows.get(id) for id, name in before.active.revision.relations.items()}
                rows |= {id: counted.get(name) for id, name in state.active.revision.relations.items()}
        return rows


def _refusal(dataflow: Dataflow, refused: Refused) -> StatementRefused:
    """The planner's refusal, with the name of the Dataflow."""
    outcome, of = outcome_of_refusal(dataflow, refused), refusal(refused)
    if isinstance(outcome, WaitingForInputs):
        text = f"Dataflow {dataflow.meta.name} would wait for its inputs: {', '.join(outcome.inputs)}"
        missing = _InputsMissing(text, of.code, of.line, of.column)
        missing.parents = frozenset(name for each in refused.diagnostics for name in each.relation[:1])
        return missing
    text = f"Dataflow {dataflow.meta.name} would be refused ({outcome.reason}): {outcome.message}"
    return StatementRefused(text, of.code, of.line, of.column)


def _body(manifest: str) -> Body:
    """Raises QueryRefused."""
    if len(manifest) > MANIFEST_CHARACTERS:
        raise QueryRefused(f"a manifest has {len(manifest)} characters, more than the limit of {MANIFEST_CHARACTERS}")
    try:
        body = json.loads(manifest)
        json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # also half of a character, which no text of a request has
        raise QueryRefused("a manifest is not JSON") from None
    if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        raise QueryRefused("a manifest is no object with metadata")
    return body


def _parsed(context: ReconcileContext, namespace: str, body: Body) -> Dataflow:
    """The Dataflow of a manifest, as the API server would have it. Raises QueryRefused."""
    given = body["metadata"]
    name, of = given.get("name"), given.get("namespace") or namespace
    if not isinstance(name, str):
        raise QueryRefused("metadata.name: is required")
    require_name(name, DATAFLOWS)
    if of != namespace:
        raise QueryRefused(f"Dataflow {name} is of namespace {of!s:.80}, not of {namespace}")
    annotations = given.get("annotations")
    replan = annotations.get(REPLAN) if isinstance(annotations, Mapping) else None
    state = context.registry.dataflow(Key(DATAFLOWS, namespace, name))
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": name if state is None else state.uid,
        "generation": 1,
        "resourceVersion": "",
        "annotations": {REPLAN: replan} if isinstance(replan, str) else {},
    }
    try:
        dataflow = Dataflow.parse({"metadata": metadata, "spec": body.get("spec")})
    except ResourceError as error:
        raise QueryRefused(f"Dataflow {name} would be refused: {error}") from None
    if max(len(dataflow.views), len(dataflow.exports)) > MAX_PARTS:
        raise QueryRefused(f"Dataflow {name} would be refused: it has more than {MAX_PARTS} views or exports")
    for view in dataflow.views:
        check_length(view.sql)
    if state is not None and dataflow.instance != state.instance:
        raise QueryRefused(f"Dataflow {name} would be refused: spec.instance is immutable, and is {state.instance}")
    return dataflow


def _merged(fields: Body, patch: Body) -> Body:
    """The fields of a spec after a patch of them."""
    changed = {n: _merged(fields.get(n) or {}, new) if isinstance(new, dict) else new for n, new in patch.items()}
    return {**fields, **changed}

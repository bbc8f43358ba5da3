"""Conditions carry the generation of the spec that they are about, also where the object is newer already."""

from __future__ import annotations

from dataclasses import replace

from tests.handlers.revisions import dataflow, rev
from tests.handlers.test_quarantine_conditions import SPEC, Reading, play
from tests.resources.manifests import body
from tidemark_operator.handlers.status.statuses import status_of
from tidemark_operator.kube.cache import key_of
from tidemark_operator.kube.client import DATAFLOWS


def test_an_edit_that_is_not_reconciled_yet_has_no_conditions() -> None:
    def scenario(reading: Reading) -> None:
        state = dataflow("b", rev("b", 1, imports=["a/i/1"], tables=()))
        state.spec = replace(state.spec, generation=1)
        reading.context.registry.put_dataflow(state)
        edited = body("Dataflow", SPEC, "b", uid="b")
        edited["metadata"]["generation"] = 2
        status = status_of(reading.context, key_of(DATAFLOWS, edited), edited, 0)
        assert status is not None
        assert {status["observedGeneration"], *(c["observedGeneration"] for c in status["conditions"])} == {1}

    play(scenario)

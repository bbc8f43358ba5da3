"""At which time a query is answered: the freshest complete one, or the one asked for, if it can be read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.controller.harness import EMPTY, at
from tests.waiting import BOUND
from tidemark_operator.errors import NoCompleteTime, QueryRefused, TimeNotReadable
from tidemark_operator.gateway.admission import wait_policy
from tidemark_operator.gateway.query.read_time import ReadableTimes, TimeRequest, choose_time
from tidemark_protocol.frontier import Frontier


def readable(since: int, write: Frontier) -> list[ReadableTimes]:
    return [ReadableTimes("revenue.by-nation", at(since), write)]


@pytest.mark.parametrize(
    ("since", "write", "as_of", "time"),
    [
        pytest.param(40, at(100), None, 99, id="the freshest complete time"),
        pytest.param(40, at(100), 40, 40, id="the oldest readable time"),
        pytest.param(40, at(100), 99, 99, id="the last complete time, asked for"),
        pytest.param(40, EMPTY, None, 1000, id="finished: now, which temporal filters see"),
        pytest.param(2000, EMPTY, None, 2000, id="finished, by a clock ahead of ours"),
        pytest.param(40, EMPTY, 5000, 5000, id="finished: also later"),
    ],
)
def test_a_time_that_can_be_read(since: int, write: Frontier, as_of: int | None, time: int) -> None:
    """Between since and the write frontier."""
    assert choose_time(readable(since, write), TimeRequest(as_of, now=1000)) == time


def test_a_query_without_inputs_is_answered_as_of_now() -> None:
    """Or as of the time asked for."""
    assert choose_time([], TimeRequest(now=1000)) == 1000
    assert choose_time([], TimeRequest(5, now=1000)) == 5


@pytest.mark.parametrize(
    ("write", "as_of", "message"),
    [
        pytest.param(
            at(100),
            39,
            r"revenue.by-nation cannot be read at 39 any more: only from 40 \(1970-01-01T00:00:00.040Z\) on, "
            r"and before 100 \(1970-01-01T00:00:00.100Z\)$",
            id="compacted",
        ),
        pytest.param(
            at(100),
            100,
            r"is not complete at 100 yet: only from 40 \(1970.* on, and before 100 \(1970",
            id="not complete",
        ),
        pytest.param(EMPTY, 39, r"only from 40 \([^)]*\) on$", id="finished, and compacted"),
        pytest.param(at(2**62), 2**62, "and before 4611686018427387904$", id="not complete in a year without a date"),
        pytest.param(at(40), None, "has no complete time yet", id="still hydrating"),
        pytest.param(at(40), 40, "has no complete time yet", id="still hydrating, whatever is asked for"),
    ],
)
def test_a_time_that_cannot_be_read_is_refused_with_those_that_can(
    write: Frontier, as_of: int | None, message: str
) -> None:
    """The user learns which time to ask for instead."""
    with pytest.raises(NoCompleteTime if "has no" in message else TimeNotReadable, match=message):
        choose_time(readable(40, write), TimeRequest(as_of))


@pytest.mark.parametrize(("as_of", "waits"), [(100, True), (10_001, False)])
def test_a_patient_query_waits_for_a_passed_time(as_of: int, waits: bool) -> None:
    """A subscribe that is taken up where another ended: its table may be a little behind that. The future is not."""
    with pytest.raises(QueryRefused, match="is not complete at") as refused:
        choose_time(readable(40, at(100)), TimeRequest(as_of, patient=True, now=10_000))
    assert isinstance(refused.value, NoCompleteTime) == waits


@pytest.mark.parametrize("as_of", [-1, -(2**63), 2**63 - 2, 2**63 - 1])
@pytest.mark.parametrize("spans", [[], readable(0, EMPTY)], ids=["reads nothing", "reads what is finished"])
def test_a_number_that_is_no_time_is_refused(as_of: int, spans: list[ReadableTimes]) -> None:
    """Nor the last there is: a dataflow for one time ends at the next, and no replica would take one that does not."""
    with pytest.raises(TimeNotReadable, match="milliseconds since 1970"):
        choose_time(spans, TimeRequest(as_of))


def test_of_several_relations_the_latest_since_and_the_earliest_frontier_count() -> None:
    """A query over all of them reads them at one time."""
    spans = [ReadableTimes("a", at(10), at(90)), ReadableTimes("b", at(40), EMPTY), ReadableTimes("c", at(0), at(70))]

    assert choose_time(spans, TimeRequest()) == 69
    with pytest.raises(QueryRefused, match="b cannot be read at 39 any more"):
        choose_time(spans, TimeRequest(39))
    with pytest.raises(QueryRefused, match="c is not complete at 70 yet"):
        choose_time(spans, TimeRequest(70))
    with pytest.raises(QueryRefused, match=r"c has no complete time yet: d can only be read from 80 .* on"):
        choose_time([*spans, ReadableTimes("d", at(80), at(90))], TimeRequest())


def test_a_query_waits_for_a_time_that_all_it_reads_have_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index begins at 80, and of the table the operator has heard up to 70 so far."""
    monkeypatch.setattr(wait_policy, "COMMON_TIME_SECONDS", BOUND)
    monkeypatch.setattr(wait_policy, "LOOK_AGAIN_SECONDS", 0.001)
    heard = iter([at(70), at(80), at(90)])

    def spans() -> Sequence[ReadableTimes]:
        return [ReadableTimes("index", at(80), at(200)), ReadableTimes("table", at(0), next(heard))]

    assert asyncio.run(wait_policy.when_possible(lambda: choose_time(spans(), TimeRequest()))) == 89
    assert list(heard) == []


def test_a_query_waits_for_a_common_time_only_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view that hydrates for an hour is not waited for; what is refused otherwise is not waited for either."""
    monkeypatch.setattr(wait_policy, "COMMON_TIME_SECONDS", 0.01)
    with pytest.raises(NoCompleteTime, match="still at it has no complete time yet"):
        asyncio.run(
            wait_policy.when_possible(
                lambda: choose_time([ReadableTimes("still at it", at(80), at(80))], TimeRequest())
            )
        )

    monkeypatch.setattr(wait_policy, "COMMON_TIME_SECONDS", float("inf"))
    with pytest.raises(QueryRefused, match="is not complete at 100 yet"):
        asyncio.run(wait_policy.when_possible(lambda: choose_time(readable(40, at(100)), TimeRequest(100))))

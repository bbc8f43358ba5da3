"""Spans go from process to process by a text, and to a collector; without an endpoint there are none."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.replica.peek.test_must_peeks import ROWS, Scene, peek
from tests.tracing.collector import collecting
from tests.waiting import BOUND
from tidemark_protocol import tracing
from tidemark_protocol.messages.responses import PeekResponse
from tidemark_replica.events.jobs import Done

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOT_SAMPLED = PARENT[:-1] + "0"
TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
SECRET = "4711-0815"
TRACED = replace(peek("p", 10), trace_context=PARENT)


class Spans:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        tracing.start("tests", SimpleSpanProcessor(self._exporter))

    def ended(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    monkeypatch.setattr(tracing, "_tracer", None)
    return Spans()


def test_a_span_goes_on_with_the_trace_of_another_process(spans: Spans) -> None:
    with tracing.span("query", PARENT, tracing.SERVER, namespace="team-a"), tracing.span("peek"):
        (carried,) = tracing.metadata()

    query, of_peek = spans.ended()["query"], spans.ended()["peek"]
    assert query.context.trace_id == of_peek.context.trace_id == TRACE
    assert query.parent is not None
    assert of_peek.parent is not None
    assert (query.parent.span_id, of_peek.parent.span_id) == (SPAN, query.context.span_id)
    assert dict(query.attributes or {}) == {"tidemark.namespace": "team-a"}
    assert tracing.from_metadata((("authorization", "x"), carried)) == carried[1]
    assert f"{of_peek.context.span_id:016x}" in carried[1]


@pytest.mark.parametrize("text", ["", "00-zz", PARENT * 2, "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "é" * 40])
def test_what_is_no_context_begins_a_trace(text: str, spans: Spans) -> None:
    with tracing.span("query", text):
        pass
    assert spans.ended()["query"].parent is None


def test_a_client_decides_whether_its_query_is_traced(spans: Spans) -> None:
    """The parts have the decision with the context."""
    with tracing.span("query", NOT_SAMPLED):
        assert tracing.current().endswith("-00")
        assert tracing.recorded_trace() == ""
    assert spans.ended() == {}


def test_part_of_nothing_is_not_traced(spans: Spans) -> None:
    """Such as the read of a peek that came from an operator without tracing."""
    with tracing.span("read"):
        assert tracing.recorded_trace() == tracing.current() == ""
    assert spans.ended() == {}


def test_an_error_is_named_and_its_message_kept_back(spans: Spans) -> None:
    """It may quote rows."""
    with pytest.raises(ValueError, match=SECRET), tracing.span("query", ""):
        raise ValueError(SECRET)
    found = spans.ended()["query"]
    assert found.status.description == "ValueError"
    assert SECRET not in found.to_json()


def test_a_peek_is_answered_with_the_span_of_the_replica(spans: Spans) -> None:
    scene = Scene(since=0, upper=11)
    scene.peeks.add(TRACED)
    scene.index.reads[0](Done(ROWS))

    found = spans.ended()["peek"]
    assert found.parent is not None
    assert (found.context.trace_id, found.parent.span_id) == (TRACE, SPAN)
    assert [event.name for event in found.events] == ["its time is complete"]
    (answer,) = scene.said
    assert isinstance(answer, PeekResponse)
    assert f"{found.context.span_id:016x}" in answer.trace_context


def test_every_end_of_a_peek_ends_its_span(spans: Spans) -> None:
    scene = Scene(since=0, upper=5)
    scene.peeks.add(TRACED)
    scene.peeks.drop_all()
    assert list(spans.ended()) == ["peek"]


def test_a_peek_without_a_trace_has_no_span(spans: Spans) -> None:
    scene = Scene(since=0, upper=11)
    scene.peeks.add(peek("p", 10))
    scene.index.reads[0](Done(ROWS))
    assert (scene.said, spans.ended()) == ([PeekResponse("p", ROWS)], {})


PROGRAM = f"""
from tidemark_protocol import tracing
tracing.start("tidemark-replica")
with tracing.span("read", "{PARENT}"):
    pass
"""


def test_spans_reach_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of a process that ends at once."""
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
        subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=BOUND)
        ((_, span),) = collector.spans(f"{TRACE:032x}").items()
    assert (span.service, span.name, span.parent) == ("tidemark-replica", "read", f"{SPAN:016x}")


def test_without_an_endpoint_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_tracer", None)
    for name in tracing.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    tracing.start("tests")
    with tracing.span("query", PARENT):
        assert (tracing.current(), tracing.metadata()) == ("", ())
    assert tracing.from_metadata((("traceparent", PARENT),)) is None


ENDLESS = """
import threading
from opentelemetry.sdk.trace import SpanProcessor
from tidemark_protocol import tracing
class Silent(SpanProcessor):
    def shutdown(self):
        threading.Event().wait()
tracing.start("tidemark-replica", Silent())
print("ends")
"""


def test_a_collector_that_does_not_answer_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last spans are sent for ever here, and the process ends all the same."""
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    done = subprocess.run([sys.executable, "-c", ENDLESS], check=True, timeout=BOUND, capture_output=True, text=True)
    assert done.stdout == "ends\n"


def test_replicas_have_the_endpoint_alone() -> None:
    """They begin no traces. Headers may have a token of the collector."""
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=x",
        "OTEL_TRACES_SAMPLER_ARG": "0.1",
        "HOME": "/",
    }
    assert tracing.endpoint(environment) == {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}
    assert tracing.endpoint({"OTEL_TRACES_SAMPLER_ARG": "0.1", "OTEL_EXPORTER_OTLP_ENDPOINT": ""}) == {}

"""Spans of one query across processes, by OpenTelemetry and exported by OTLP.

    client ──traceparent──► gateway: query ─┬─ plan ──► planner: plan
                                            ├─ peek ──► replica: peek ─── read ─── spark job
                                            └─ send  ◄── its span ┘

A context goes from process to process as the text of W3C's header `traceparent`. Tracing is off unless the environment
names an endpoint; then a span costs a comparison. Spans have names of objects and counts, and neither SQL, rows, nor
messages of errors.

    OTEL_EXPORTER_OTLP_ENDPOINT          such as http://collector:4317 (gRPC; https:// for TLS)
    OTEL_TRACES_SAMPLER, ..._ARG         such as parentbased_traceidratio, 0.01; all queries unless said otherwise
    OTEL_SERVICE_NAME                    instead of the name of the process

The queue of spans is bounded. Spans are dropped where the endpoint does not take them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from socket import gethostname
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, SpanKind, StatusCode, Tracer
from opentelemetry.trace import Span as Span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidemark_protocol.messages.commands import TRACE_CONTEXT_MAX

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SETTINGS = (*ENDPOINTS, "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG")
"""Environment variables that a process passes on to those that it starts. None is secret."""
HEADER = "traceparent"
NO_SPAN = INVALID_SPAN
INTERNAL, CLIENT, SERVER = SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.SERVER
Value = str | int
_W3C = TraceContextTextMapPropagator()
_tracer: Tracer | None = None


def start(service: str, processor: SpanProcessor | None = None) -> None:
    """Export the spans of this process from now on, if the environment names an endpoint.

    `service`: the name of the process. `processor`: takes the spans instead of an exporter.
    """
    global _tracer
    if processor is None and not any(map(os.environ.get, ENDPOINTS)):
        return
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if processor is None:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        processor = BatchSpanProcessor(OTLPSpanExporter())
    named = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or service, "service.instance.id": gethostname()}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(processor)
    _tracer = provider.get_tracer("tidemark")


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of tracing among the variables of an environment; none where it names no endpoint."""
    if not any(map(environment.get, ENDPOINTS)):
        return {}
    return {name: environment[name] for name in SETTINGS if name in environment}


def begin(name: str, parent: str | None = None, kind: SpanKind = INTERNAL, **attributes: Value) -> Span:
    """A span that its caller ends.

    `parent`: the context of another process; empty, or no context: the span begins a trace. None: the span that is
    current here; where none is, nothing is traced.
    """
    if _tracer is None or (parent is None and trace.get_current_span() is INVALID_SPAN):
        return INVALID_SPAN
    named = {f"tidemark.{key}": value for key, value in attributes.items()}
    return _tracer.start_span(name, None if parent is None else _context(parent), kind, named)


def span(
    name: str, parent: str | None = None, kind: SpanKind = INTERNAL, **attributes: Value
) -> AbstractContextManager[Span]:
    """A span that is current within the block, and ends with it."""
    return nullcontext(INVALID_SPAN) if _tracer is None else _current(begin(name, parent, kind, **attributes))


@contextmanager
def _current(made: Span) -> Iterator[Span]:
    with trace.use_span(made, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield made
        except BaseException as error:
            made.set_status(StatusCode.ERROR, type(error).__name__)
            raise


def context_of(made: Span) -> str:
    """The context for processes that go on with the span's trace; empty where tracing is off."""
    if _tracer is None:
        return ""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(made, Context()))
    return carrier.get(HEADER, "")


def current() -> str:
    """The context of the span that is current here."""
    return "" if _tracer is None else context_of(trace.get_current_span())


def trace_id(made: Span) -> str:
    """The trace of the span, in hex; empty where tracing is off."""
    found = made.get_span_context()
    return trace.format_trace_id(found.trace_id) if found.is_valid else ""


def link(context: str) -> None:
    """Name the span of another process that answered the span that is current here."""
    if _tracer is not None and context:
        trace.get_current_span().add_link(trace.get_current_span(_context(context)).get_span_context())


def metadata() -> tuple[tuple[str, str], ...]:
    """What a call over gRPC carries for the span that is current here."""
    return ((HEADER, context),) if (context := current()) else ()


def from_metadata(pairs: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    """The context that a call over gRPC carries; None where it has none."""
    if _tracer is None:
        return None
    return next((value for key, value in pairs or () if key == HEADER and isinstance(value, str)), None)


def _context(text: str) -> Context:
    return _W3C.extract({HEADER: text} if len(text) <= TRACE_CONTEXT_MAX else {}, Context())

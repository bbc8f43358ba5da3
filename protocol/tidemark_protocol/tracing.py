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

import atexit
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from socket import gethostname
from typing import TYPE_CHECKING, Any, Protocol

from tidemark_protocol.messages.commands import TRACE_CONTEXT_MAX

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
HEADER = "traceparent"
END_SECONDS = 2.0
"""The time that the end of a process waits for the endpoint to take the last spans."""
INTERNAL, CLIENT, SERVER = "INTERNAL", "CLIENT", "SERVER"
Value = str | int


class Span(Protocol):
    """The operations of code on a span."""

    def add_event(self, name: str) -> Any: ...

    def end(self) -> None: ...


class _NoSpan:
    """Where nothing is traced."""

    def add_event(self, name: str) -> None: ...

    def end(self) -> None: ...


NO_SPAN: Span = _NoSpan()


class _Tracer:
    """OpenTelemetry, which is imported where tracing is on: it takes a tenth of a second."""

    def __init__(self, service: str, processor: SpanProcessor | None) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        if processor is None:
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

            processor = BatchSpanProcessor(OTLPSpanExporter())
        named = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or service, "service.instance.id": gethostname()}
        provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
        provider.add_span_processor(processor)
        atexit.register(_end, processor)
        self.trace, self._context, self._w3c = trace, Context, TraceContextTextMapPropagator()
        self._tracer = provider.get_tracer("tidemark")

    def begin(self, name: str, parent: str | None, kind: str, attributes: Mapping[str, Value]) -> Any:
        named = {f"tidemark.{key}": value for key, value in attributes.items()}
        context = None if parent is None else self.extracted(parent)
        return self._tracer.start_span(name, context, self.trace.SpanKind[kind], named)

    def current(self) -> Any | None:
        """The span that is current here; None where none is."""
        found = self.trace.get_current_span()
        return found if found.get_span_context().is_valid else None

    def injected(self, made: Any) -> str:
        carrier: dict[str, str] = {}
        self._w3c.inject(carrier, self.trace.set_span_in_context(made, self._context()))
        return carrier.get(HEADER, "")

    def extracted(self, text: str) -> Any:
        return self._w3c.extract({HEADER: text} if len(text) <= TRACE_CONTEXT_MAX else {}, self._context())


_tracer: _Tracer | None = None


def start(service: str, processor: SpanProcessor | None = None) -> None:
    """Export the spans of this process from now on, if the environment names an endpoint.

    `service`: the name of the process. `processor`: takes the spans instead of an exporter.
    """
    global _tracer
    if processor is not None or endpoint(os.environ):
        _tracer = _Tracer(service, processor)


def _end(processor: SpanProcessor) -> None:
    """Send the last spans. A collector that is away does not hold up the end, which may be that of a leader."""
    ending = threading.Thread(target=processor.shutdown, name="end of spans", daemon=True)
    ending.start()
    ending.join(END_SECONDS)


def endpoint(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that processes need which never begin a trace; none where tracing is off."""
    return {name: value for name in ENDPOINTS if (value := environment.get(name))}


def begin(name: str, parent: str | None = None, kind: str = INTERNAL, **attributes: Value) -> Span:
    """A span that its caller ends.

    `parent`: the context of another process; empty, or no context: the span begins a trace. None: the span that is
    current here; where none is, nothing is traced. `kind`: INTERNAL, CLIENT or SERVER.
    """
    if _tracer is None or (parent is None and _tracer.current() is None):
        return NO_SPAN
    made: Span = _tracer.begin(name, parent, kind, attributes)
    return made


def span(
    name: str, parent: str | None = None, kind: str = INTERNAL, **attributes: Value
) -> AbstractContextManager[Span]:
    """A span that is current within the block, and ends with it."""
    made = NO_SPAN if _tracer is None else begin(name, parent, kind, **attributes)
    return nullcontext(made) if made is NO_SPAN else _current(made)


@contextmanager
def _current(made: Any) -> Iterator[Span]:
    assert _tracer is not None
    trace = _tracer.trace
    with trace.use_span(made, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield made
        except BaseException as error:
            made.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise


def context_of(made: Span) -> str:
    """The context for processes that go on with the span's trace; empty where nothing is traced."""
    return "" if _tracer is None or made is NO_SPAN else _tracer.injected(made)


def current() -> str:
    """The context of the span that is current here."""
    found = None if _tracer is None else _tracer.current()
    return "" if found is None else context_of(found)


def recorded_trace() -> str:
    """The trace of the span that is current here, in hex; empty where it is not recorded."""
    found = None if _tracer is None else _tracer.current()
    return f"{found.get_span_context().trace_id:032x}" if found is not None and found.is_recording() else ""


def link(context: str) -> None:
    """Name the span of another process that answered the span that is current here."""
    if context and _tracer is not None and (found := _tracer.current()) is not None:
        found.add_link(_tracer.trace.get_current_span(_tracer.extracted(context)).get_span_context())


def metadata() -> tuple[tuple[str, str], ...]:
    """The metadata of a gRPC call for the span that is current here."""
    return ((HEADER, context),) if (context := current()) else ()


def from_metadata(pairs: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    """The context that a call over gRPC carries; None where it has none."""
    if _tracer is None:
        return None
    return next((value for key, value in pairs or () if key == HEADER and isinstance(value, str)), None)

"""The addresses that sinks connect to, checked before a sink is sent to a replica: the list is that of sources.

A sink whose address is not in the list is left out of what replicas are sent. Its view is computed all the same, and
condition Delivered names the address.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidemark_operator.resources.addresses.address import (
    Address,
    InvalidAddress,
    address,
    address_of_text,
    address_of_url,
)
from tidemark_operator.resources.addresses.allowed_hosts import AllowedHosts
from tidemark_protocol.plan.dataflow import DataflowDescription, MaterializedViewSink, OutsideSink, SinkExport
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_protocol.plan.sinks.postgres import PostgresSink


def refusal(sink: OutsideSink, allowed: AllowedHosts) -> str:
    """The reason why the sink may not connect; empty where it may connect to all its addresses."""
    try:
        refusals = (allowed.check(place) for place in addresses_of(sink))
        return next((text for text in refusals if text is not None), "")
    except InvalidAddress as error:
        return f"an address of the sink cannot be checked: {error}"


def addresses_of(sink: OutsideSink) -> Iterator[Address]:
    """All addresses that a replica connects to for the sink. Raises InvalidAddress."""
    if isinstance(sink, PostgresSink):
        yield address(sink.host, sink.port)
    if isinstance(sink, KafkaSink):
        yield from (address_of_text(broker) for broker in sink.brokers)
        if sink.registry:
            yield address_of_url(sink.registry)


def without_refused(description: DataflowDescription, allowed: AllowedHosts) -> DataflowDescription:
    """The description without the sinks that may not connect."""
    exports = tuple(_without_refused(export, allowed) for export in description.sink_exports)
    return replace(description, sink_exports=exports)


def _without_refused(export: SinkExport, allowed: AllowedHosts) -> SinkExport:
    if not isinstance(export.sink, MaterializedViewSink):
        return export
    sink = export.sink
    if sink.postgres is not None and refusal(sink.postgres, allowed):
        sink = replace(sink, postgres=None)
    if sink.kafka is not None and refusal(sink.kafka, allowed):
        sink = replace(sink, kafka=None)
    return replace(export, sink=sink)

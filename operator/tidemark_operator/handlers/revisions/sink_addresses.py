"""A sink whose address the operator does not allow (resources/addresses) is left out of what replicas are sent.

Its view is computed all the same, and condition Delivered names the address.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark_operator.resources.addresses.allowed_hosts import AllowedHosts
from tidemark_operator.resources.addresses.connections import refusal
from tidemark_protocol.plan.dataflow import DataflowDescription, MaterializedViewSink, SinkExport


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

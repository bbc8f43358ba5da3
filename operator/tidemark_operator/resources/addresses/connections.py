"""The addresses that sources and sinks connect to, checked before anything of them is sent to a replica.

Load generators and written tables connect nowhere. Files and Delta tables in an object store are read at the endpoint
of the instance, which whoever writes the ComputeInstance chose, unless the source names one.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.resources.addresses.address import (
    Address,
    InvalidAddress,
    address,
    address_of_text,
    address_of_url,
)
from tidemark_operator.resources.addresses.allowed_hosts import AllowedHosts
from tidemark_protocol.plan.dataflow import OutsideSink
from tidemark_protocol.plan.ingestion import DeltaSource, FilesSource, PostgresSource, SourceSpec
from tidemark_protocol.plan.kafka import KafkaSource
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_protocol.plan.sinks.postgres import PostgresSink

Connecting = SourceSpec | OutsideSink


def refusal(of: Connecting, allowed: AllowedHosts) -> str:
    """The reason why the source or sink may not connect; empty where it may connect to all its addresses."""
    try:
        refusals = (allowed.check(place) for place in addresses_of(of))
        return next((text for text in refusals if text is not None), "")
    except InvalidAddress as error:
        return f"an address of spec cannot be checked: {error}"


def addresses_of(of: Connecting) -> Iterator[Address]:
    """All addresses that a replica connects to. Raises InvalidAddress.

    Each kind that connects to a server has its case here: `address(host, port)`, `address_of_text("host:port")`,
    `address_of_url(url)`. Its replica takes no address from a Secret.
    """
    if isinstance(of, PostgresSource | PostgresSink):
        yield address(of.host, of.port)
    if isinstance(of, FilesSource | DeltaSource) and of.endpoint:
        yield address_of_url(of.endpoint)
    if isinstance(of, KafkaSource | KafkaSink):
        yield from map(address_of_text, of.brokers)
        if of.registry:
            yield address_of_url(of.registry)

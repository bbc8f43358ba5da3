"""The addresses that a source connects to, checked before anything of it is sent to a replica.

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
from tidemark_operator.resources.addresses.allowed_hosts import ADDRESS_NOT_ALLOWED, AllowedHosts
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_protocol.plan.ingestion import DeltaSource, FilesSource, PostgresSource, SourceSpec
from tidemark_protocol.plan.kafka import KafkaSource


def address_not_allowed(source: SourceSpec, allowed: AllowedHosts) -> IngestionFailure | None:
    """The reason why the source is refused; None where it may connect to all its addresses."""
    try:
        for place in addresses_of(source):
            if (refusal := allowed.check(place)) is not None:
                return IngestionFailure(ADDRESS_NOT_ALLOWED, refusal)
    except InvalidAddress as error:
        return IngestionFailure(ADDRESS_NOT_ALLOWED, f"an address of spec cannot be checked: {error}")
    return None


def addresses_of(source: SourceSpec) -> Iterator[Address]:
    """All addresses that a replica connects to for the source. Raises InvalidAddress.

    Each kind that connects to a server has its case here: `address(host, port)`, `address_of_text("host:port")`,
    `address_of_url(url)`. Its replica takes no address from a Secret.
    """
    if isinstance(source, PostgresSource):
        yield address(source.host, source.port)
    if isinstance(source, FilesSource | DeltaSource) and source.endpoint:
        yield address_of_url(source.endpoint)
    if isinstance(source, KafkaSource):
        yield from (address_of_text(broker) for broker in source.brokers)
        if source.registry:
            yield address_of_url(source.registry)

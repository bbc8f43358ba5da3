"""The operator's list of addresses that sources and sinks may connect to: they must be no way to scan a network.

    db.shop.svc           this host, every port             10.1.0.0/16, [fd00::/8]:5432    addresses, written as such
    db.shop.svc:5432      one port                          *:9092                          every host, but see below
    *.db.svc:5432-5440    every name below db.svc           localhost, 127.0.0.0/8          only where they are listed

`*` stands for no loopback, link-local, multicast or unspecified address: those are of the machine or of its cloud. The
list concerns texts, not what a name resolves to: a name that is allowed is trusted, as are the addresses that a server
behind it refers to (the brokers of a Kafka cluster).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from tidemark_operator.resources.addresses.address import (
    PORT_MAX,
    Address,
    Host,
    InvalidAddress,
    host_of,
)

ADDRESS_NOT_ALLOWED = "AddressNotAllowed"
"""The reason of conditions."""
EVERYTHING = ("*", "localhost", "*.localhost", "127.0.0.0/8", "[::1]")
"""The patterns of local mode: the user of a machine reaches with its replicas what the user reaches anyway."""
_PATTERN = re.compile(r"(?P<host>\[[^\[\]]+\]|[^\[\]:]+)(?::(?P<first>[0-9]{1,5})(?:-(?P<last>[0-9]{1,5}))?)?")
# they contain IPv4 addresses, which a router translates back: NAT64, 6to4, and the deprecated IPv4-compatible ones
_EMBEDDING = tuple(IPv6Network(text) for text in ("64:ff9b::/96", "2002::/16", "::/96"))


@dataclass(frozen=True)
class HostPattern:
    """One entry of the list. `host`: a name, a name after `*.`, a network, or `*`."""

    host: str | IPv4Network | IPv6Network
    first: int = 1
    last: int = PORT_MAX

    @classmethod
    def parse(cls, text: str) -> HostPattern:
        """Raises InvalidAddress."""
        found = _PATTERN.fullmatch(text)
        if found is None:
            raise InvalidAddress(f"{text!r:.300} is not HOST, HOST:PORT or HOST:PORT-PORT")
        first = int(found["first"] or 1)
        last = int(found["last"] or found["first"] or PORT_MAX)
        if not 1 <= first <= last <= PORT_MAX:
            raise InvalidAddress(f"{text!r:.300} has no ports from 1 to {PORT_MAX}, the lower one first")
        return cls(_pattern_host(found["host"]), first, last)

    def matches(self, place: Address) -> bool:
        return self.first <= place.port <= self.last and self._matches_host(place.host)

    def _matches_host(self, host: Host) -> bool:
        if isinstance(self.host, IPv4Network | IPv6Network):
            return not isinstance(host, str) and host in self.host
        if self.host == "*":
            return not _is_local(host)
        if self.host.startswith("*."):
            return isinstance(host, str) and host.endswith(self.host[1:])
        return host == self.host


@dataclass(frozen=True)
class AllowedHosts:
    """The list. Without patterns nothing is allowed."""

    patterns: tuple[HostPattern, ...] = ()

    @classmethod
    def parse(cls, patterns: Sequence[str]) -> AllowedHosts:
        """Raises InvalidAddress."""
        return cls(tuple(HostPattern.parse(text) for text in patterns))

    def check(self, place: Address) -> str | None:
        """The reason why a source, or a sink, may not connect to the address, and how to allow it; None where it
        may."""
        if any(pattern.matches(place) for pattern in self.patterns):
            return None
        return (
            f"this operator lets neither sources nor sinks connect to {place}. Whoever runs it allows the address by "
            f"--source-hosts={place} (with the chart: an entry {place} of sources.allowedHosts)"
        )


def _pattern_host(text: str) -> str | IPv4Network | IPv6Network:
    if text == "*":
        return text
    if text.startswith("*."):
        name = host_of(text[2:])
        if not isinstance(name, str):
            raise InvalidAddress(f"{text!r:.300} is not *. before a name: write addresses as 10.0.0.0/8")
        return f"*.{name}"
    if "/" in text:
        return _network(text)
    host = host_of(text)
    return host if isinstance(host, str) else ip_network(host)


def _network(text: str) -> IPv4Network | IPv6Network:
    plain = text[1:-1] if text.startswith("[") else text
    try:
        network = ip_network(plain)
    except ValueError as error:
        raise InvalidAddress(f"{text!r:.300} is not a network such as 10.0.0.0/8 or [fd00::/8]: {error}") from None
    if isinstance(network, IPv6Network) != text.startswith("["):
        raise InvalidAddress(f"{text!r:.300}: an IPv6 network has brackets, an IPv4 network has none")
    return network


def _is_local(host: Host) -> bool:
    """Whether the host is the machine itself, or an address that a cloud answers at for the machine alone."""
    if isinstance(host, str):
        return host == "localhost" or host.endswith(".localhost")
    if host.is_loopback or host.is_link_local or host.is_unspecified or host.is_multicast:
        return True
    if isinstance(host, IPv6Address):
        return any(host in network for network in _EMBEDDING)
    return host in IPv4Network("0.0.0.0/8") or host == IPv4Address("255.255.255.255")

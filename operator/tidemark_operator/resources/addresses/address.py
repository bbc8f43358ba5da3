"""Addresses of servers, in one form: `address("DB.shop.svc.", 5432)` equals `address("db.shop.svc", 5432)`.

    a name     letters, digits, `-` and `_`, in labels; lower case, without the dot at the end
    IPv4       four decimal numbers. Resolvers read 127.1, 0x7f000001 and 017700000001, too: these are refused
    IPv6       with or without brackets, without a zone. An IPv4 address in it (::ffff:127.0.0.1) is that IPv4 address

A client parses the same text with a parser of its own. So whatever two parsers may read differently is refused: users
in URLs, backslashes, spaces, fragments, lists of hosts, paths of sockets, letters beyond ASCII.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

PORT_MAX, NAME_LENGTH_MAX = 65535, 253
DEFAULT_PORTS = {"http": 80, "https": 443}
Host = str | IPv4Address | IPv6Address
"""A name in lower case, or an address."""
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[^\[\]:]+):(?P<port>[0-9]{1,5})")
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?:/[A-Za-z0-9._~/%!$&'()*+,;=:-]*)?"
)


class InvalidAddress(ValueError):
    """A text that is no address. The message says why."""


@dataclass(frozen=True)
class Address:
    """Where a source connects to."""

    host: Host
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if isinstance(self.host, IPv6Address) else f"{self.host}:{self.port}"


def address(host: str, port: int) -> Address:
    """Raises InvalidAddress."""
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= PORT_MAX:
        raise InvalidAddress(f"port {port!r:.20} is not a number from 1 to {PORT_MAX}")
    return Address(host_of(host), port)


def address_of_text(text: str) -> Address:
    """The address in `HOST:PORT`. Raises InvalidAddress."""
    found = _HOST_PORT.fullmatch(text)
    if found is None:
        raise InvalidAddress(f"{text!r:.300} is not HOST:PORT")
    return address(found["host"], int(found["port"]))


def address_of_url(url: str) -> Address:
    """The address of an http or https URL without a user, a query and a fragment. Raises InvalidAddress."""
    found = _URL.fullmatch(url)
    if found is None:
        raise InvalidAddress(
            "it is not an http:// or https:// URL of a host, a port and a path; a user, a query or a fragment does not "
            "belong in it"
        )  # without the URL: it may have a password
    return address(found["host"], int(found["port"] or DEFAULT_PORTS[found["scheme"]]))


def host_of(text: str) -> Host:
    """The host in its one form. Raises InvalidAddress."""
    plain = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in plain:
        return _ipv6(plain)
    if plain != text:
        raise InvalidAddress(f"{text!r:.300} has brackets and is not an IPv6 address")
    name = plain.lower().removesuffix(".")
    labels = name.split(".")
    if not text.isascii() or len(name) > NAME_LENGTH_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidAddress(f"{text!r:.300} is not a host name (write letters beyond ASCII as xn--...) or an address")
    if not _NUMBER.fullmatch(labels[-1]):
        return name
    try:
        return IPv4Address(plain)
    except ValueError:
        raise InvalidAddress(f"{text!r:.300} is not an IPv4 address of four decimal numbers") from None


def _ipv6(text: str) -> Host:
    try:
        found = ip_address(text)
    except ValueError:
        raise InvalidAddress(f"{text!r:.300} is not an IPv6 address") from None
    if not isinstance(found, IPv6Address) or found.scope_id is not None:
        raise InvalidAddress(f"{text!r:.300} has a zone: write the address without it")
    return found.ipv4_mapped or found

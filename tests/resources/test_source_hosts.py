"""The addresses that sources may connect to. No spelling of an address gets past the list."""

from __future__ import annotations

import socket
import string
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3.util
from hypothesis import given
from hypothesis import strategies as st

from tidemark_operator.errors import OperatorError
from tidemark_operator.options import parse
from tidemark_operator.resources.addresses.address import (
    InvalidAddress,
    address,
    address_of_text,
    address_of_url,
    host_of,
)
from tidemark_operator.resources.addresses.allowed_hosts import EVERYTHING, AllowedHosts
from tidemark_operator.resources.addresses.connections import refusal
from tidemark_protocol.plan.ingestion import PostgresSource

LABEL = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
NAME = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
PORT = st.integers(1, 65535)
AWKWARD = st.text(alphabet=string.ascii_letters + string.digits + ".:@/\\[]%#?*-_, \t\n\0ⓛ。", max_size=24)
LOCAL = ("localhost", "a.localhost", "127.0.0.1", "127.8.9.1", "0.0.0.0", "0.1.2.3", "169.254.169.254", "224.0.0.1")
LOCAL_V6 = (
    "::1", "::", "fe80::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
)  # fmt: skip


def allowed(*patterns: str) -> AllowedHosts:
    return AllowedHosts.parse(patterns)


def refusal_of(hosts: AllowedHosts, host: str, port: int) -> str | None:
    """The refusal of a source that connects to the address; None where it may."""
    return refusal(PostgresSource(host, port, "shop", "orders-db", "p", ()), hosts) or None


@pytest.mark.parametrize(
    ("pattern", "let", "refused"),
    [
        ("db.shop.svc:5432", ["db.shop.svc:5432", "DB.Shop.SVC.:5432"], ["db.shop.svc:5433", "x.db.shop.svc:5432"]),
        ("DB.shop.svc.", ["db.shop.svc:1", "db.shop.svc:65535"], ["db.shop.svc.evil.com:1", "shop.svc:1"]),
        ("*.db.svc:5432", ["a.db.svc:5432", "a.b.db.svc:5432"], ["db.svc:5432", "adb.svc:5432", "a.db.svc.x:5432"]),
        ("kafka:9092-9094", ["kafka:9092", "kafka:9094"], ["kafka:9091", "kafka:9095"]),
        ("10.1.0.0/16:5432", ["10.1.255.3:5432"], ["10.2.0.1:5432", "10.1.0.1:5433", "a10.1.0.x:5432"]),
        ("10.1.2.3", ["10.1.2.3:1", "[::ffff:10.1.2.3]:1"], ["10.1.2.4:1"]),
        ("[fd00::/8]:5432", ["[fd00::1]:5432", "[FD12:0:0::1]:5432"], ["[fe00::1]:5432", "[fd00::1]:1"]),
        ("[2001:db8::1]", ["[2001:DB8:0:0::1]:7"], ["[2001:db8::2]:7", "db8:7"]),
        ("*:443", ["example.com:443", "10.0.0.1:443", "[fd00::1]:443"], ["example.com:80", "localhost:443"]),
        ("localhost:5432", ["localhost:5432", "LOCALHOST.:5432"], ["127.0.0.1:5432", "a.localhost:5432"]),
        ("127.0.0.0/8", ["127.0.0.1:5", "[::ffff:127.0.0.1]:5"], ["localhost:5", "128.0.0.1:5"]),
    ],
)
def test_a_pattern_lets_its_addresses_and_no_others(pattern: str, let: list[str], refused: list[str]) -> None:
    """Names and addresses are compared in one form; nothing is resolved."""
    hosts = allowed(pattern)
    assert [text for text in let if hosts.check(address_of_text(text)) is not None] == []
    assert [text for text in refused if hosts.check(address_of_text(text)) is None] == []


@pytest.mark.parametrize("host", [*LOCAL, *LOCAL_V6])
def test_all_hosts_are_not_those_of_the_machine(host: str) -> None:
    """`*` in a cluster does not open the metadata of the cloud, nor what listens beside the replica."""
    assert refusal_of(allowed("*"), host, 80) is not None


def test_a_refusal_says_which_address_and_how_to_allow_it() -> None:
    """The message has a pattern that allows it."""
    for host in ("DB.shop.svc.", "10.0.0.1", "fd00::1", "[FD00::1]"):
        text = refusal_of(allowed(), host, 5432)
        assert text is not None
        pattern = text.split("--source-hosts=")[1].split()[0]
        assert refusal_of(allowed(pattern), host, 5432) is None
        assert f"an entry {pattern} of sources.allowedHosts" in text


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "..", "a..b", ".a", "a..", "-a", "a-", "a b", "a\n", "a\0b", "a/b", "a\\b", "a@b", "a#b", "a?b", "a%b",
        "a,b", "/var/run/postgresql", "@abstract", "a" * 64, ".".join(["a" * 60] * 5), "ⓛocalhost", "a。b", "ä.de",
        "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.0.0.01", "127.0.0.1.",
        "1.2.3.4.5", "a.0x", "256.1.1.1",
        "[::1", "::1]", "[a]", "[127.0.0.1]", "fe80::1%eth0", "[fe80::1%25eth0]", "1::2::3", "::g", "a:80", "[[::1]]",
    ],
)  # fmt: skip
def test_a_text_that_is_no_host_in_one_form_is_refused(text: str) -> None:
    """Each of these is read in two ways by some pair of resolvers and parsers, or by none."""
    with pytest.raises(InvalidAddress):
        host_of(text)
    assert "cannot be checked" in (refusal_of(AllowedHosts.parse(EVERYTHING), text, 80) or "")


@pytest.mark.parametrize("port", [0, -1, 65536, True, "80", 80.0, None])
def test_a_text_that_is_no_port_is_refused(port: Any) -> None:
    """A bool is an int for Python."""
    assert refusal_of(AllowedHosts.parse(EVERYTHING), "db", port) is not None


@pytest.mark.parametrize(
    "pattern",
    [
        "", "*.", "*a.b", "a.*", "*.*", "**", "*.10.0.0.0/8", "*.1.2.3.4", "a:0", "a:65536", "a:9-8",
        "a:", "a:1-", "a:-1",
        "http://a", "a/24", "10.0.0.1/8", "10.0.0.0/33", "fd00::/8", "[10.0.0.0/8]", "[fd00::1/8]", "a b",
        "u@a", "0x7f.1",
        "a:80,b:80",
    ],
)  # fmt: skip
def test_a_pattern_that_means_nothing_ends_the_operator_at_its_start(pattern: str) -> None:
    """With a message that names it, and not with a list that lets more than was meant."""
    with pytest.raises(InvalidAddress):
        allowed(pattern)
    with pytest.raises(OperatorError, match="--source-hosts: "):
        parse(["--state-dir", "s", f"--source-hosts={pattern}"])


@pytest.mark.parametrize(
    "url",
    [
        "http://allowed@evil/", "http://allowed:80@evil/", "http://evil\\@allowed/", "http://evil#@allowed/",
        "http://evil?@allowed/",
        "http://user:password@allowed/", "http:/allowed",
        "http:allowed", "//allowed", "ftp://allowed", "http:// allowed", "http://allowed\t",
        "http://allowed\n/", "http://", "http:///allowed", "http://allowed:/", "http://allowed:99999", "http://[::1",
        "http://[fe80::1%25eth0]/",
        "http://0x7f.1/", "http://127.1/", "http://ⓛocalhost/", "HTTP://allowed/",
        "http://allowed/a b", "http://allowed/?x=1", "http://a%2eb/",
    ],
)  # fmt: skip
def test_a_url_that_two_parsers_may_read_differently_is_refused(url: str) -> None:
    """And its text, which may have a password, is not quoted."""
    with pytest.raises(InvalidAddress) as error:
        address_of_url(url)
    assert "password@" not in str(error.value)


def test_a_url_has_the_port_of_its_scheme() -> None:
    """Unless it has its own."""
    texts = ["http://a", "https://A.b./path/x", "https://[FD00::1]:8081/"]
    assert [str(address_of_url(text)) for text in texts] == ["a:80", "a.b:443", "[fd00::1]:8081"]


@given(NAME, PORT, st.data())
def test_case_and_a_last_dot_change_nothing(name: str, port: int, data: st.DataObject) -> None:
    """For the address, and for the pattern."""
    spelt = "".join(data.draw(st.sampled_from([letter, letter.upper()])) for letter in name)
    spelt += data.draw(st.sampled_from(["", "."]))
    assert address(spelt, port) == address(name, port)
    assert refusal_of(allowed(f"{spelt}:{port}"), name, port) is None
    assert refusal_of(allowed(f"{name}:{port}"), spelt, port) is None


@given(st.lists(NAME, max_size=3), NAME, PORT)
def test_names_are_let_as_the_plain_model_has_it(patterns: list[str], name: str, port: int) -> None:
    """Exact names, and names below a wildcard."""
    exact, below = set(patterns[::2]), patterns[1::2]
    hosts = allowed(*exact, *(f"*.{each}" for each in below))
    expected = name in exact or any(name.split(".")[-len(b.split(".")) :] == b.split(".") and name != b for b in below)
    assert (refusal_of(hosts, name, port) is None) == expected


@given(AWKWARD, PORT)
def test_whatever_is_let_by_a_name_is_that_name(text: str, port: int) -> None:
    """Nothing but letters, a case and a dot away."""
    if refusal_of(allowed("allowed.example"), text, port) is None:
        assert text.lower().removesuffix(".") == "allowed.example"


@given(st.one_of(AWKWARD, st.integers(0, 2**32 - 1).flatmap(lambda number: st.sampled_from(spellings(number)))))
def test_a_name_is_never_a_text_that_a_resolver_reads_as_an_address(text: str) -> None:
    """getaddrinfo reads more spellings of an IPv4 address than the decimal one."""
    try:
        host = host_of(text)
    except InvalidAddress:
        return
    try:
        read = IPv4Address(socket.inet_aton(text))
    except OSError:
        assert not isinstance(host, IPv4Address) or ":" in text
    else:
        assert host == read


def spellings(number: int) -> list[str]:
    a, b, c, d = number.to_bytes(4, "big")
    return [
        str(number), hex(number), oct(number).replace("0o", "0"), f"{a}.{b}.{c}.{d}", f"{a}.{b}.{c * 256 + d}",
        f"{a}.{number & 0xFFFFFF}",
        f"0x{a:x}.{b}.{c}.{d}", f"0{a:o}.{b}.{c}.{d}", f"{a}.{b}.{c}.0x{d:X}", f"{a}.{b}.{c}.{d}.",
    ]  # fmt: skip


@given(st.integers(0, 2**128 - 1), PORT)
def test_one_ipv6_address_has_one_form(number: int, port: int) -> None:
    """Exploded, compressed, in upper case and in brackets."""
    value = IPv6Address(number)
    for text in (str(value), value.exploded, value.exploded.upper(), f"[{value}]"):
        assert address(text, port).host == (value.ipv4_mapped or value)


@given(st.integers(0, 2**32 - 1), st.integers(0, 32), st.integers(0, 2**32 - 1))
def test_networks_let_the_addresses_in_them(base: int, prefix: int, other: int) -> None:
    """By their leading bits; the IPv6 spelling of an IPv4 address too."""
    mask = (2**32 - 1) ^ (2 ** (32 - prefix) - 1)
    hosts = allowed(f"{IPv4Address(base & mask)}/{prefix}")
    for text in (str(IPv4Address(other)), f"::ffff:{IPv4Address(other)}"):
        assert (refusal_of(hosts, text, 1) is None) == (other & mask == base & mask)


@given(
    st.builds(
        "{}{}{}{}{}".format,
        st.sampled_from(["http://", "https://", "http:/", "//", "http:\\\\", ""]),
        st.sampled_from(["", "user@", "user:pw@", "good.example@", "good.example:80@"]),
        st.one_of(NAME, AWKWARD, st.sampled_from(["good.example", "[::1]", "127.1"])),
        st.sampled_from(["", ":80", ":0x50", ":", ":80:90"]),
        st.one_of(st.sampled_from(["", "/", "/a/b", "#@good.example", "?@good.example", "\\@good.example"]), AWKWARD),
    )
)
def test_agree_every_parser_on_the_host_of_a_url_that_is_let(url: str) -> None:
    """Python's own and urllib3's connect to the host that was checked."""
    try:
        place = address_of_url(url)
    except InvalidAddress:
        return
    by_urllib, by_urllib3 = urlsplit(url), urllib3.util.parse_url(url)
    for host, port in ((by_urllib.hostname, by_urllib.port), (by_urllib3.host, by_urllib3.port)):
        assert host is not None
        assert host_of(host) == place.host
        assert (port or {"http": 80, "https": 443}[by_urllib.scheme]) == place.port
    assert by_urllib.username is None


def test_local_mode_lets_everything_and_pods_nothing() -> None:
    """By default; what is given is all that counts."""
    pods = ["--orchestrator", "kubernetes", "--replica-image", "i", "--planner", "p:1"]
    local, cluster = (parse(["--state-dir", "s", *more]).allowed_hosts for more in ([], pods))
    given = parse(["--state-dir", "s", "--source-hosts", "db:5432"]).allowed_hosts

    for host in ("localhost", "127.0.0.1", "::1", "db.example.com", "10.0.0.1", "fd00::1"):
        assert ip_or_name(host)
        assert refusal_of(local, host, 5432) is None
        assert refusal_of(cluster, host, 5432) is not None
        assert refusal_of(given, host, 5432) is not None
    assert refusal_of(local, "169.254.169.254", 80) is not None
    assert refusal_of(given, "db", 5432) is None


def ip_or_name(host: str) -> bool:
    return bool(host.replace(".", "").isalpha() or ip_address(host))

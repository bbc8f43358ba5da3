"""The veth between the host and a node: made on the host, one end given to the node's network namespace.

The kernel removes both ends when the namespace ends. The name's number is taken by making the link, which only
one of several can do; the hardware address says whose it is.
"""

import ipaddress
import json
import subprocess
from collections.abc import Iterable
from typing import Any

from tidemark_devcluster.errors import KernelLacks, StartFailed
from tidemark_devcluster.node.host_requirements import find
from tidemark_devcluster.node.node_layout import SERVICE_SUBNET, Addresses, Place

NUMBERS = range(64)
INSIDE_NAME = "eth0"


def candidates(links: Iterable[str], routes: Iterable[str]) -> list[Addresses]:
    """The networks that neither a link nor a route of this machine uses."""
    taken = set(links)
    reached = [ipaddress.ip_network(route) for route in routes if route != "default"]
    free = [Addresses(number) for number in NUMBERS]
    return [
        one
        for one in free
        if one.link not in taken and not any(ipaddress.ip_address(one.node) in network for network in reached)
    ]


def find_own(place: Place) -> Addresses | None:
    """The link of this node, if there is one."""
    for link in _ip_json("link", "show", "type", "veth"):
        if link.get("address") == place.hardware_address:
            return Addresses(int(link["ifname"].removeprefix("tidemark")))
    return None


def make(place: Place) -> Addresses:
    """A link of the next free number. Both ends are still on the host."""
    links = [link["ifname"] for link in _ip_json("link", "show")]
    routes = [route["dst"] for route in _ip_json("-4", "route", "show", "table", "main")]
    reason = "all its networks are taken"
    for addresses in candidates(links, routes):
        options = ["name", addresses.link, "address", place.hardware_address]
        answer = _ip("link", "add", *options, "type", "veth", "peer", "name", f"{addresses.link}in")
        if answer.returncode == 0:
            return addresses
        reason = answer.stderr.strip()
        if "File exists" not in reason:  # else another node took the number just now
            break
    raise KernelLacks(f"no veth could be made for the node ({reason}): does this kernel have veth (CONFIG_VETH)?")


def give(addresses: Addresses, process: int) -> None:
    """Give the inner end to the network namespace of a process, and bring up the outer one."""
    _must("link", "set", f"{addresses.link}in", "netns", str(process), "name", INSIDE_NAME)
    _must("addr", "add", f"{addresses.host}/30", "dev", addresses.link)
    _must("link", "set", addresses.link, "up")


def remove(place: Place) -> None:
    """Remove this node's link, if its namespace did not take it along."""
    if (own := find_own(place)) is not None:
        _ip("link", "delete", own.link)  # it may go by itself at this very moment


def configure_inside(addresses: Addresses) -> None:
    """Run in the node's namespace: addresses, and the way to services. There is none to the outside."""
    _must("link", "set", "lo", "up")
    _must("addr", "add", f"{addresses.node}/30", "dev", INSIDE_NAME)
    _must("link", "set", INSIDE_NAME, "up")
    # a service's address is translated after a route was found for it
    _must("route", "add", SERVICE_SUBNET, "via", addresses.host)


def _ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([find("ip"), *arguments], capture_output=True, text=True, check=False)


def _ip_json(*arguments: str) -> list[dict[str, Any]]:
    return list(json.loads(_must("-json", *arguments) or "[]"))


def _must(*arguments: str) -> str:
    answer = _ip(*arguments)
    if answer.returncode != 0:
        raise StartFailed(f"ip {' '.join(arguments)}: {answer.stderr.strip()}")
    return answer.stdout

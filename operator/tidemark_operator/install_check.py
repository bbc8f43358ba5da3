"""`python -m tidemark_operator.install_check`: whether what was installed works, for `helm test`.

    somebody holds the Lease ─► and renews it while we look ─► the planner and the gateway take a connection ─► status 0

What does not is said in one line, with exit status 1.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.client import LEASES, ApiError, Kube
from tidemark_operator.kube.leadership import LEASE
from tidemark_operator.kube.lease import holder_of, spec_of

LOOK_SECONDS = 1.0


class Broken(OperatorError):
    """What was installed does not work."""


async def somebody_leads(kube: Kube, namespace: str) -> str:
    """Who, once the Lease has been renewed before our eyes; cancelled by who gives up."""
    first = None
    while True:
        lease = await kube.get(LEASES, namespace, LEASE)
        seen = (holder_of(lease), spec_of(lease).get("renewTime"))
        if first is not None and seen[0] and seen != first:
            return seen[0]
        first = first or seen
        await asyncio.sleep(LOOK_SECONDS)


async def answers(address: str) -> None:
    """It takes a connection; what is said on one needs a certificate or a token. Cancelled by who gives up."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            await asyncio.sleep(LOOK_SECONDS)
        else:
            writer.close()
            return


async def check(kubeconfig: Path | None, namespace: str, asked: Mapping[str, str], seconds: float) -> str:
    """What is well; raises OperatorError."""
    async with Kube.connect(kubeconfig) as kube:
        try:
            async with asyncio.timeout(seconds):
                leader = await somebody_leads(kube, namespace)
        except TimeoutError:
            raise Broken(f"no operator holds and renews Lease {namespace}/{LEASE}: see its pods' logs") from None
        except ApiError as error:
            raise Broken(f"Lease {namespace}/{LEASE} cannot be read: {error}") from None
    for what, address in asked.items():
        try:
            async with asyncio.timeout(seconds):
                await answers(address)
        except TimeoutError:
            raise Broken(f"no {what} answers at {address}: see its pods' logs") from None
    return f"{leader} leads; {' and '.join(f'the {what} at {address}' for what, address in asked.items())} answer"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tidemark_operator.install_check", description="Whether an installation works."
    )
    parser.add_argument("--kubeconfig", type=Path, help="of the cluster; absent: the pod's service account")
    parser.add_argument("--lease-namespace", required=True, help="where the operators' Lease is")
    parser.add_argument("--planner", required=True, help="host:port of the planner")
    parser.add_argument("--gateway", required=True, help="host:port of the gateway, where who leads is to be found")
    parser.add_argument("--seconds", type=float, default=60.0, help="to wait for each (%(default)s)")
    given = parser.parse_args(arguments)
    try:
        asked = {"planner": given.planner, "gateway": given.gateway}
        print(asyncio.run(check(given.kubeconfig, given.lease_namespace, asked, given.seconds)))
    except OperatorError as error:
        print(f"tidemark_operator.install_check: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

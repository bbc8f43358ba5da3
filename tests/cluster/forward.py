"""A port of a pod or a service, on loopback of this machine: `kubectl port-forward`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tidemark_devcluster.node.cluster import OneNode


@contextmanager
def forwarded(node: OneNode, namespace: str, target: str, port: int) -> Iterator[int]:
    """The port on this machine that leads there, as long as the pod lives."""
    program = [str(node.layout.kubectl), f"--kubeconfig={node.layout.kubeconfig}"]
    command = [*program, "port-forward", "-n", namespace, target, f":{port}", "--address=127.0.0.1"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            output = process.stdout.readline()  # Forwarding from 127.0.0.1:40123 -> 7070
            assert output.startswith("Forwarding from "), f"{target} cannot be reached"
            yield int(output.split()[2].rpartition(":")[2])
        finally:
            process.kill()

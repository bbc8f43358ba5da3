"""What kubectl knows of its user: it reads the kubeconfig, finds the context, and logs in; we ask it."""

from __future__ import annotations

import base64
import binascii
import json
import subprocess
from dataclasses import dataclass

from tidemark_cli.errors import GatewayFailed

SECONDS = 30.0


@dataclass(frozen=True)
class Certificate:
    """A client certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


def certificate() -> Certificate:
    """That of the current context's user; raises GatewayFailed."""
    done = kubectl("--client-certificate", "config", "view", "--raw", "--flatten", "--minify", "--output", "json")
    if done.returncode:
        raise GatewayFailed(f"kubectl cannot read the kubeconfig: {done.stderr.strip()}")
    try:
        (named,) = json.loads(done.stdout)["users"]
        user = named["user"]
        return Certificate(*(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
    except (ValueError, KeyError, TypeError, binascii.Error):
        raise GatewayFailed(
            "the current context of the kubeconfig has no client certificate: give --service-account NAME"
        ) from None


def kubectl(what_for: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Raises GatewayFailed where it is not there, or does not end."""
    try:
        return subprocess.run(["kubectl", *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)
    except FileNotFoundError:
        raise GatewayFailed(f"{what_for} needs kubectl, which is not on the PATH") from None
    except subprocess.TimeoutExpired:
        raise GatewayFailed(f"kubectl did not end within {SECONDS:.0f} s: does the API server answer?") from None

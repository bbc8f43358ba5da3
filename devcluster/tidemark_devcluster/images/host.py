"""The host's settings that builds need: package indexes and certificate authorities.

They are mounted into the steps of a build, where pip finds them, and are not part of any image.
"""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# the settings of pip that say where packages come from
KEPT = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout")
AUTHORITIES = "/etc/tidemark-build/authorities.pem"
PIP_CONFIG = "/etc/pip.conf"


@dataclass(frozen=True)
class HostConfig:
    """A pip.conf for builds, and the file of authorities that it names, if there is one."""

    pip_conf: str
    authorities: Path | None


def parse(listed: str) -> dict[str, str]:
    """`pip config list` as setting ─► value; what the environment says comes later and wins."""
    settings = {}
    for line in listed.splitlines():
        name, found, value = line.partition("=")
        if found:
            settings[name.rpartition(".")[2]] = value.strip().strip("'\"")
    return settings


def config(settings: Mapping[str, str], environ: Mapping[str, str]) -> HostConfig:
    """The settings of pip that a build takes over."""
    lines = ["[global]"] + [f"{name} = {settings[name]}" for name in KEPT if name in settings]
    named = settings.get("cert") or environ.get("SSL_CERT_FILE")
    authorities = Path(named) if named and Path(named).is_file() else None
    if authorities is not None:
        lines.append(f"cert = {AUTHORITIES}")
    return HostConfig("\n".join(lines) + "\n", authorities)


def read(environ: Mapping[str, str]) -> HostConfig:
    """The settings of this machine, as its own pip sees them."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    answer = subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=False)
    return config(parse(answer.stdout), environ)


def volumes(host: HostConfig, pip_conf: Path) -> list[str]:
    """The options of `buildah build` that mount it; `pip_conf` is where its text was written."""
    options = [f"--volume={pip_conf}:{PIP_CONFIG}:ro"]
    if host.authorities is not None:
        options.append(f"--volume={host.authorities}:{AUTHORITIES}:ro")
    return options

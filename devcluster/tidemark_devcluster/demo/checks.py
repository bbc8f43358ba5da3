"""What a machine needs before anything is started: said in one line each, with the remedy."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tidemark_devcluster.cache import GIB, require_disk, require_memory
from tidemark_devcluster.errors import DevClusterError

JAVA_AT_LEAST = 17
MEMORY = 4 * GIB
DISK = 3 * GIB
_VERSION = re.compile(r'version "(\d+)')


class MachineUnfit(DevClusterError):
    """Something that must be installed is not."""


def check_machine(folder: Path) -> None:
    """Raises MachineUnfit, NotEnoughRoom."""
    check_java()
    require_memory(MEMORY, "the demo")
    require_disk(folder, DISK, "the demo")


def check_java() -> None:
    """Spark needs a Java runtime of 17 or newer on PATH."""
    remedy = f"install one (Debian, Ubuntu: apt-get install openjdk-{JAVA_AT_LEAST}-jre-headless)"
    try:
        said = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        raise MachineUnfit(f"no Java runtime was found, and Spark needs Java {JAVA_AT_LEAST}: {remedy}") from None
    found = _VERSION.search(said.stderr + said.stdout)
    if found is None or int(found[1]) < JAVA_AT_LEAST:
        version = found[1] if found else "unknown"
        raise MachineUnfit(f"the Java runtime on PATH is version {version}, and Spark needs {JAVA_AT_LEAST}: {remedy}")

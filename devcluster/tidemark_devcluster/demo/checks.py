"""What a machine needs before anything is started: said in one line each, with the remedy.

Java is checked before this (`tools/check-java`), Python and its packages by whoever made the environment.
"""

from __future__ import annotations

from pathlib import Path

from tidemark_devcluster.programs.cache import GIB, require_disk, require_memory

MEMORY = 4 * GIB
DISK = 3 * GIB


def check_machine(folder: Path) -> None:
    """Raises NotEnoughRoom."""
    require_memory(MEMORY, "the demo")
    require_disk(folder, DISK, "the demo", elsewhere="a checkout elsewhere, or --home")

"""Requirements of a machine, checked before anything is started: one line for each missing one, with the remedy.

`tools/check-java` checks Java before this, and make checks Python and its packages.
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

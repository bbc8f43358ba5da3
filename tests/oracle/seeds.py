"""How many random histories a case is run over: few in `make test`, TIDEMARK_ORACLE_SEEDS of them in `make oracle`."""

from __future__ import annotations

import os


def seeds(few: int) -> range:
    """The seeds, from 1 on."""
    return range(1, 1 + int(os.environ.get("TIDEMARK_ORACLE_SEEDS", few)))

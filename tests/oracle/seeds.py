"""The number of random histories of a case: few in `make test`, TIDEMARK_ORACLE_SEEDS of them in `make oracle`.

TIDEMARK_ORACLE_FIRST_SEED chooses other ones.
"""

from __future__ import annotations

import os

FEW = 1
"""Histories of each case in `make test`."""


def asks_for_many() -> bool:
    """Whether this is `make oracle`."""
    return "TIDEMARK_ORACLE_SEEDS" in os.environ


def seeds(few: int) -> range:
    """The seeds, from 1 on unless another is the first."""
    first = int(os.environ.get("TIDEMARK_ORACLE_FIRST_SEED", 1))
    return range(first, first + int(os.environ.get("TIDEMARK_ORACLE_SEEDS", few)))

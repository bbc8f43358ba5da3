"""A tree on its way to Spark's Python workers: it arrives as the very object that it was at the last step.

A task unpickles the function that it runs. Were the tree made anew each time, so would be what is remembered for its
parts: compiled expressions, schemas.
"""

from __future__ import annotations

import pickle
from functools import lru_cache
from typing import cast

from tidemark_replica.render.plan.pipeline import Pipeline


@lru_cache(maxsize=1024)
def unpickled(sent: bytes) -> Pipeline:
    """The tree in this process."""
    tree: Pipeline = pickle.loads(sent)
    return tree


def pickled_once(tree: Pipeline) -> Pipeline:
    """What to give away in the place of a tree, to be unpickled as that tree."""
    return cast("Pipeline", _PickledTree(tree))


class _PickledTree:
    """Pickled once."""

    def __init__(self, tree: Pipeline) -> None:
        self._sent = pickle.dumps(tree)

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return unpickled, (self._sent,)

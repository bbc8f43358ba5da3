"""Pickled pipelines: a Spark task gets the same object for a tree at every step.

A task unpickles its function at every step. A new tree each time would lose what is cached for its parts: compiled
expressions, schemas. So a tree is pickled once, and each process caches it by its bytes.
"""

from __future__ import annotations

import pickle
from functools import lru_cache
from typing import cast

from tidemark_replica.render.plan.pipeline import Pipeline


@lru_cache(maxsize=1024)
def unpickled(sent: bytes) -> Pipeline:
    """The tree of these bytes, one object per process."""
    tree: Pipeline = pickle.loads(sent)
    return tree


def pickled_once(tree: Pipeline) -> Pipeline:
    """A stand-in for a tree that unpickles as that tree."""
    return cast("Pipeline", _PickledTree(tree))


class _PickledTree:
    """A tree as bytes."""

    def __init__(self, tree: Pipeline) -> None:
        self._sent = pickle.dumps(tree)

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return unpickled, (self._sent,)

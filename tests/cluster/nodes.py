"""A node with both images on it: a new one, or the running one that TIDEMARK_TEST_NODE names."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tidemark_devcluster.images.build import BuildOptions, Image, build_all
from tidemark_devcluster.node import host_requirements
from tidemark_devcluster.node.binaries import NodeBinaries
from tidemark_devcluster.node.cluster import OneNode
from tidemark_devcluster.programs.progress import ProgressOutput


@contextmanager
def running_node(binaries: NodeBinaries) -> Iterator[OneNode]:
    """Without our images; one that was given is left running."""
    if given := os.environ.get("TIDEMARK_TEST_NODE"):
        yield OneNode(Path(given))
        return
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-node-", ignore_cleanup_errors=True) as folder,
        OneNode.started(Path(folder) / "state", binaries) as node,
    ):
        yield node


def built(progress: ProgressOutput) -> dict[str, Image]:
    """Both images, from this checkout."""
    host_requirements.require_image_tools()
    return build_all(BuildOptions(python=os.environ.get("TIDEMARK_PYTHON_IMAGE")), os.environ, progress)


def load(node: OneNode, images: Mapping[str, Image]) -> None:
    for image in images.values():
        node.load(image.archive)

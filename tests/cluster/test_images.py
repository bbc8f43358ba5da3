"""Both images, as a strict cluster runs them: an unknown user, no capability, a root that is not writable."""

from __future__ import annotations

import pytest

from tests.cluster import pods
from tidemark_devcluster.images.build import GOALS_MB, TARGETS, Image
from tidemark_devcluster.node.cluster import OneNode

WHO = """
import os, pathlib
status = pathlib.Path("/proc/self/status").read_text()
print("uid", os.getuid())
print([line.split()[1] for line in status.splitlines() if line.startswith(("CapEff", "NoNewPrivs", "Seccomp:"))])
try:
    pathlib.Path("/opt/x").write_text("")
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_is_no_larger_than_its_goal(images: dict[str, Image], target: str) -> None:
    """Compressed by gzip, as it is pulled."""
    assert images[target].size.compressed / 1e6 <= GOALS_MB[target]


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_needs_no_right_at_all(node: OneNode, namespace: str, images: dict[str, Image], target: str) -> None:
    """The pod is admitted under `restricted`, and the kernel says that nothing was given."""
    made = pods.pod("who", images[target].name, [], command=["python", "-c", WHO])
    output = pods.run(node, namespace, made).splitlines()
    assert output == [f"uid {pods.STRANGER}", "['0000000000000000', '1', '2']", "Read-only file system"]


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        ("operator", ["--help"]),
        ("replica", ["tidemark_replica", "--help"]),
        ("replica", ["tidemark_planner", "--help"]),
    ],
)
def test_each_program_starts(
    node: OneNode, namespace: str, images: dict[str, Image], target: str, arguments: list[str]
) -> None:
    """Through the image's own entry point."""
    assert "usage:" in pods.run(node, namespace, pods.pod("help", images[target].name, arguments))


def test_the_operator_has_no_jvm(node: OneNode, namespace: str, images: dict[str, Image]) -> None:
    """Nor an engine: it reads no data."""
    program = "import importlib.util, shutil; print(shutil.which('java'), importlib.util.find_spec('pyspark'))"
    made = pods.pod("bare", images["operator"].name, [], command=["python", "-c", program])
    assert pods.run(node, namespace, made).strip() == "None None"

"""The repository's own tests inside the replica's image: every kind of source, operator and sink, and the planner.

So nothing that runs is missing from what replica_image/image/left-out.txt left over. Each kind runs in all its
ways, but is not killed and not run for long: no class comes of that.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster import pods
from tidemark_devcluster.images.build import BuildOptions, Image, image_name, version, workshop
from tidemark_devcluster.node.cluster import OneNode
from tidemark_devcluster.programs.progress import ProgressOutput

DOCKERFILE = Path(__file__).with_name("Dockerfile")
NAME = f"tidemark.local/replica-tests:{version()}"
# part of a replica ─► tests that run it for real, on Spark
TESTS = {
    "operators": ["tests/oracle/test_variants.py"],
    "planner": ["tests/planner/test_functions_round_trip.py", "tests/planner/test_peek.py"],
    "sources": ["tests/storage"],
    "sinks": [
        "tests/replica/sinks/test_copies_as_csv.py",
        "tests/replica/sinks/test_subscribes_on_spark.py",
        "tests/replica/dataflow/test_dataflows_on_spark.py",
        "tests/continual_tasks/test_oracle_tasks.py",
    ],
}


@pytest.fixture(scope="module")
def tests_image(bare_node: OneNode, images: dict[str, Image], progress: ProgressOutput) -> str:
    """The replica's image with tests on top, on the node."""
    options = [f"--build-arg=REPLICA={images['replica'].name}"]
    with workshop(BuildOptions(python=image_name("operator")), os.environ, progress) as shop:
        archive = shop.build(NAME, "tests", "tests", DOCKERFILE, options)
    bare_node.load(archive)
    return NAME


@pytest.mark.parametrize("part", TESTS)
def test_all_that_a_replica_does_runs_on_its_image(node: OneNode, namespace: str, tests_image: str, part: str) -> None:
    """The replica runs as an unknown user, on a read-only root."""
    options = ["-q", "-m", "not slow and not cluster", "-p", "no:cacheprovider", "--basetemp=/tmp/pytest"]
    made = pods.pod("tests", tests_image, ["pytest", *options, *TESTS[part]], workingDir="/src")
    output = pods.run(node, namespace, made, seconds=3000.0)
    assert " passed" in output.splitlines()[-1]

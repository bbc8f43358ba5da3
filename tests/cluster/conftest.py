"""A node, both images on it, and an S3 server: shared by all tests of `make test-cluster`.

    node ─► images (built where they changed) ─► loaded ─► a namespace for each test, under PodSecurity `restricted`

It needs root and some Debian packages (docs/guides/development.md), and takes minutes the first time. Without these
every test that needs them fails, with what is missing and the remedy; for what the kernel lacks there is none, so
tests that need a node are left out, and say which feature it is.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cluster import nodes
from tests.cluster.helm import Helm
from tests.cluster.object_store import ObjectStore, install
from tests.cluster.pods import restricted_namespace
from tidemark_devcluster.errors import KernelLacks
from tidemark_devcluster.images.build import Image
from tidemark_devcluster.node import host_requirements
from tidemark_devcluster.node.binaries import NodeBinaries, ensure_node_binaries
from tidemark_devcluster.node.cluster import OneNode
from tidemark_devcluster.programs.build import ensure_helm, ensure_versitygw
from tidemark_devcluster.programs.progress import ProgressOutput

TEST_SECONDS = 3600
OF_THIS_FOLDER = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder, and nothing of it elsewhere, is `make test-cluster`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.node)
            # what is built the first time is built within a test's time
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[OF_THIS_FOLDER] = any(item.get_closest_marker("node") for item in session.items)


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last line of all: how many passed, how many did not."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not config.stash.get(OF_THIS_FOLDER, False):
        return
    passed, failed, errors, skipped = (
        len(reporter.stats.get(outcome, ())) for outcome in ("passed", "failed", "error", "skipped")
    )
    left_out = f", {skipped} skipped" if skipped else ""
    print(f"{passed} passed, {failed + errors} failed{left_out}", flush=True)


@contextmanager
def left_out_without_the_kernel() -> Iterator[None]:
    """A problem that the machine's owner can mend is an error."""
    try:
        yield
    except KernelLacks as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def progress() -> ProgressOutput:
    return ProgressOutput(sys.__stderr__ or sys.stderr)


@pytest.fixture(scope="session")
def node_binaries(progress: ProgressOutput) -> NodeBinaries:
    """The programs; the first time they are compiled, which takes minutes and is shown."""
    with left_out_without_the_kernel():
        host_requirements.require_all()
    return ensure_node_binaries(os.environ, progress)


@pytest.fixture(scope="session")
def images(progress: ProgressOutput) -> dict[str, Image]:
    """Both images, built from this checkout."""
    return nodes.built(progress)


@pytest.fixture(scope="session")
def bare_node(node_binaries: NodeBinaries) -> Iterator[OneNode]:
    """A node without our images, which all tests share; one that runs already, where TIDEMARK_TEST_NODE says which."""
    with ExitStack() as stack:
        with left_out_without_the_kernel():
            node = stack.enter_context(nodes.running_node(node_binaries))
        yield node


@pytest.fixture(scope="session")
def node(bare_node: OneNode, images: dict[str, Image]) -> OneNode:
    """The same with our images."""
    nodes.load(bare_node, images)
    return bare_node


@pytest.fixture(scope="session")
def object_store(
    node: OneNode, images: dict[str, Image], progress: ProgressOutput, tmp_path_factory: pytest.TempPathFactory
) -> ObjectStore:
    """An S3 server in the cluster, with one bucket."""
    packed = tmp_path_factory.mktemp("versitygw") / "image.tar"
    return install(node, ensure_versitygw(os.environ, progress), images["operator"].name, packed)


@pytest.fixture(scope="session")
def helm(node: OneNode, progress: ProgressOutput, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """helm, speaking to the node."""
    return Helm(ensure_helm(os.environ, progress), node, tmp_path_factory.mktemp("helm"))


@pytest.fixture
def namespace(node: OneNode) -> Iterator[str]:
    """A new namespace that admits unprivileged pods alone; its deletion is begun when the test ends."""
    name = f"t-{secrets.token_hex(4)}"
    node.kubectl("apply", "--filename=-", stdin=restricted_namespace(name))
    node.kubectl("wait", "-n", name, "--for=create", "serviceaccount/default", "--timeout=110s")
    yield name
    node.kubectl("delete", "namespace", name, "--wait=false")

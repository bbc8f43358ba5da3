"""The programs of a node: those of the control plane, and those that only a node runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemark_devcluster.programs import recipe
from tidemark_devcluster.programs.build import Binaries, ensure_families, from_assets
from tidemark_devcluster.programs.cache import BuildCache
from tidemark_devcluster.programs.progress import ProgressOutput


@dataclass(frozen=True)
class NodeBinaries:
    """Where each program is."""

    plane: Binaries
    kubelet: Path
    kube_scheduler: Path
    kube_proxy: Path
    coredns: Path
    pause: Path


def ensure_node_binaries(environ: Mapping[str, str], progress: ProgressOutput) -> NodeBinaries:
    """All of them: from `KUBEBUILDER_ASSETS`, from the cache, or compiled now, one after the other."""
    given = from_assets(environ)
    families = {
        recipe.PROGRAMS: tuple(program for program in recipe.PROGRAMS if program not in given),
        recipe.NODE_PROGRAMS: recipe.NODE_PROGRAMS,
        (recipe.COREDNS_SERVER,): (recipe.COREDNS_SERVER,),
        (recipe.PAUSE_PROGRAM,): (recipe.PAUSE_PROGRAM,),
    }
    paths = given | ensure_families(families, BuildCache.of(environ), environ, progress)
    return NodeBinaries(
        plane=Binaries(
            etcd=paths[recipe.ETCD_SERVER],
            kube_apiserver=paths[recipe.KUBE_APISERVER],
            kube_controller_manager=paths[recipe.KUBE_CONTROLLER_MANAGER],
            kubectl=paths[recipe.KUBECTL],
        ),
        kubelet=paths[recipe.KUBELET],
        kube_scheduler=paths[recipe.KUBE_SCHEDULER],
        kube_proxy=paths[recipe.KUBE_PROXY],
        coredns=paths[recipe.COREDNS_SERVER],
        pause=paths[recipe.PAUSE_PROGRAM],
    )

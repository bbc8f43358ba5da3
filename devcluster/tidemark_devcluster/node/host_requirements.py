"""Requirements of a node on its machine. They are checked before anything starts; each error names the remedy."""

import os
import platform
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from tidemark_devcluster.errors import KernelLacks, NodeImpossible

# program ─► the Debian package that brings it
PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
    "nft": "nftables",
    "conntrack": "conntrack",
    "socat": "socat",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "openssl": "openssl",
}
# the programs that build images, which a node can do without
IMAGE_PACKAGES = {"buildah": "buildah", "debootstrap": "debootstrap", "unshare": "util-linux"}
CNI_FOLDER = Path("/usr/lib/cni")
CNI_PLUGINS = ("ptp", "host-local", "portmap", "loopback")
CNI_PACKAGE = "containernetworking-plugins"
# where Debian puts what an ordinary user's PATH may lack
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONTROLLERS = ("cpu", "memory", "pids")


def find(program: str) -> str:
    """Where a program of a Debian package is."""
    path = shutil.which(program, path=SYSTEM_PATH)
    if path is None:
        package = (PACKAGES | IMAGE_PACKAGES).get(program, program)
        raise NodeImpossible(f"{program} is missing: `make cluster-packages` installs it (Debian: {package})")
    return path


def missing_packages(
    programs: Mapping[str, str] = PACKAGES,
    which: Callable[[str], str | None] = lambda program: shutil.which(program, path=SYSTEM_PATH),
    cni: Path = CNI_FOLDER,
) -> list[str]:
    """The Debian packages of those of `programs` that are not there, and of the plugins of the network."""
    packages = {package for program, package in programs.items() if which(program) is None}
    if not all(os.access(cni / plugin, os.X_OK) for plugin in CNI_PLUGINS):
        packages.add(CNI_PACKAGE)
    return sorted(packages)


def missing_features(filesystems: str, cgroups: str) -> list[str]:
    """The missing kernel features, by `/proc/filesystems` and `/proc/cgroups` (with the controllers of v2)."""
    known = {line.split()[-1] for line in filesystems.splitlines() if line.strip()}
    enabled = {row[0] for line in cgroups.splitlines() if not line.startswith("#") and (row := line.split())[-1] == "1"}
    features = [] if "overlay" in known else ["overlayfs (CONFIG_OVERLAY_FS; perhaps `modprobe overlay`)"]
    return features + [f"the cgroup controller {name}" for name in CONTROLLERS if name not in enabled]


def require_image_tools() -> None:
    """Refuse to build images where it cannot succeed."""
    _require_root("building images", "chroot, mounts")
    for program in IMAGE_PACKAGES:
        find(program)


def _require_root(what: str, why: str) -> None:
    if platform.system() != "Linux":
        raise NodeImpossible(f"{what} works on Linux only: use a Linux machine")
    if os.geteuid() != 0:
        raise NodeImpossible(f"{what} needs root ({why}): run the same command with sudo")


def require_all() -> None:
    """Refuse to start a node, with one line that names all that is missing."""
    _require_root("a node", "namespaces, mounts, cgroups")
    if packages := missing_packages():
        raise NodeImpossible(
            "a node needs programs that are missing: `make cluster-packages` installs them on Debian "
            f"({' '.join(packages)})"
        )
    lacks = missing_features(
        Path("/proc/filesystems").read_text(encoding="ascii"), Path("/proc/cgroups").read_text(encoding="ascii")
    )
    if lacks:
        raise KernelLacks(f"this kernel lacks {', '.join(lacks)}: a node cannot run on it")

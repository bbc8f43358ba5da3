"""The mounts that isolate a node's files, in a mount namespace of its own.

/run/tidemark   the state folder, under a short name
/run            otherwise empty, in memory: sockets, network namespaces of pods, locks of iptables
/var            reads the host's; writes go to the state folder
"""

import subprocess
from pathlib import Path

from tidemark_devcluster.errors import StartFailed
from tidemark_devcluster.node.node_layout import INSIDE


def isolate(state: Path) -> None:
    """Make them. Only for a process that has just got a mount namespace of its own."""
    run = state / "mount"
    _mount("-t", "tmpfs", "-o", "mode=0755", "tidemark", str(run))
    (run / INSIDE.name).mkdir()
    _mount("--bind", str(state), str(run / INSIDE.name))
    _mount("--move", str(run), "/run")
    for name in ("netns", "cni", "containerd", "lock"):
        (Path("/run") / name).mkdir()
    upper, work = INSIDE / "var" / "upper", INSIDE / "var" / "work"
    upper.mkdir()
    work.mkdir()
    _mount("-t", "overlay", "-o", f"lowerdir=/var,upperdir={upper},workdir={work}", "tidemark", "/var")
    # containerd must see kubelet's mounts, and neither sees those of containers
    _mount("--make-rshared", "/")


def _mount(*arguments: str) -> None:
    answer = subprocess.run(["mount", "--no-mtab", *arguments], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise StartFailed(
            f"mount {' '.join(arguments)}: {answer.stderr.strip()} (is the state folder on a file system that an "
            "overlay can write to, such as ext4 or xfs? choose another with --state)"
        )

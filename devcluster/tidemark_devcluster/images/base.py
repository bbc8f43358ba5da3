"""A base image of Debian's own packages, to build on where none is pulled: the same Debian and Python release.

    debootstrap ─► a minimal bookworm ─► less documentation ─► an image ─► base.Dockerfile: python3.11 and venv

It is made once; `tidemark-devcluster images --new-base` makes it again, with Debian's present packages.
"""

import shutil
import subprocess
from pathlib import Path

from tidemark_devcluster.errors import ImageFailed
from tidemark_devcluster.images.buildah import Buildah
from tidemark_devcluster.node.host_requirements import find
from tidemark_devcluster.programs.progress import ProgressOutput

RELEASE = "bookworm"
DEBIAN = f"localhost/tidemark/debian:{RELEASE}"
IMAGE = "localhost/tidemark/python:3.11-bookworm"
DOCKERFILE = Path(__file__).with_name("base.Dockerfile")
MIRROR = "http://deb.debian.org/debian"
LOG_TAIL_LINES = 15
NO_DOCUMENTATION = """path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/man/*
path-exclude /usr/share/locale/*
"""
NOT_NEEDED = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/man", "usr/share/locale", "usr/share/info")


def ensure(buildah: Buildah, mirror: str, progress: ProgressOutput, anew: bool) -> str:
    """The base image's name, when it is there."""
    if anew or not buildah.has(DEBIAN):
        root = buildah.storage.parent / "base"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        step = progress.step("a base of Debian packages", "one to two minutes, once")
        try:
            _bootstrap(root, mirror)
            trim(root)
            buildah.commit_folder(root, DEBIAN)
        except BaseException:
            step.failed()
            raise
        finally:
            shutil.rmtree(root, ignore_errors=True)
        step.done()
    if anew or not buildah.has(IMAGE):
        options = [f"--file={DOCKERFILE}", f"--build-arg=DEBIAN={DEBIAN}"]
        buildah.build(DOCKERFILE.parent, "python", IMAGE, options, progress)
    return IMAGE


def _bootstrap(root: Path, mirror: str) -> None:
    # in namespaces of its own: what it mounts and starts ends with it, also when it is killed
    command = [find("unshare"), "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private"]
    command += [find("debootstrap"), "--variant=minbase", RELEASE, str(root), mirror]
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        log = root / "debootstrap" / "debootstrap.log"
        log_text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else answer.stdout + answer.stderr
        log_text = "\n".join(log_text.splitlines()[-LOG_TAIL_LINES:])
        raise ImageFailed(f"debootstrap made no base image from {mirror} (--mirror names another):\n{log_text}")


def trim(root: Path) -> None:
    """Remove what no image needs, and have dpkg leave it out from now on; licences stay."""
    for name in NOT_NEEDED:
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir(parents=True)
    (root / "var/lib/apt/lists/partial").mkdir()
    for path in sorted((root / "usr/share/doc").rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.name != "copyright":
            path.unlink()
    (root / "etc/dpkg/dpkg.cfg.d/tidemark").write_text(NO_DOCUMENTATION, encoding="ascii")

"""buildah with its own storage in the cache: no daemon, and no access to the machine's images."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_devcluster.control_plane.layout import write_private
from tidemark_devcluster.errors import ImageFailed
from tidemark_devcluster.node.host_requirements import find
from tidemark_devcluster.programs.progress import ProgressOutput

LOG_TAIL_LINES = 25


@dataclass(frozen=True)
class Buildah:
    """A buildah command with its storage folder and its log file."""

    storage: Path
    log: Path
    environ: Mapping[str, str]

    def has(self, image: str) -> bool:
        listed = self._run(["images", "--json"])
        return any(image in (one.get("names") or []) for one in json.loads(listed or "null") or [])

    def identity(self, image: str) -> str:
        """The id of an image, which changes with its contents."""
        return self._run(["inspect", "--type=image", "--format={{.FromImageID}}", image]).strip()

    def commit_folder(self, root: Path, image: str) -> None:
        """An image of one layer that holds what a folder holds."""
        container = self._run(["from", "scratch"]).strip()
        try:
            self._run(["copy", "--quiet", container, str(root), "/"])
            self._run(
                ["config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container]
            )
            self._run(["config", "--env", "LANG=C.UTF-8", container])
            self._run(["commit", "--quiet", container, image])
        finally:
            self._run(["rm", container])

    def build(self, context: Path, target: str, image: str, options: Sequence[str], progress: ProgressOutput) -> None:
        """Build one target of the Dockerfile; unchanged layers are reused."""
        step = progress.step(f"image {image}", "minutes the first time")
        try:
            self._run(["build", "--layers", f"--target={target}", f"--tag={image}", *options, str(context)])
        except BaseException:
            step.failed()
            raise
        step.done()

    def save(self, image: str, archive: Path) -> None:
        """Write an image as a docker archive, whole or not at all."""
        partial = archive.with_name(f"{archive.name}.partial")
        partial.unlink(missing_ok=True)
        try:
            self._run(["push", "--quiet", image, f"docker-archive:{partial}:{image}"])
            os.replace(partial, archive)
        finally:
            partial.unlink(missing_ok=True)

    def prune(self) -> None:
        """Remove containers that a killed build left; images and layers stay."""
        self._run(["rm", "--all"])

    def _run(self, arguments: Sequence[str]) -> str:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        root = [
            "--root",
            str(self.storage / "root"),
            "--runroot",
            str(self.storage / "run"),
            "--storage-driver=overlay",
        ]
        settings = self.storage / "containers.conf"
        if not settings.is_file():
            self.storage.mkdir(parents=True, exist_ok=True)
            # it makes this folder, for networks that builds of ours do not have, in /etc unless told otherwise
            write_private(settings, f'[network]\nnetwork_config_dir = "{self.storage / "cni"}"\n')
        environment = dict(self.environ) | {"BUILDAH_ISOLATION": "chroot", "CONTAINERS_CONF": str(settings)}
        with self.log.open("ab") as log:
            answer = subprocess.run(
                [find("buildah"), *root, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                check=False,
            )
            log.write(answer.stdout)
        if answer.returncode != 0:
            tail = "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:])
            raise ImageFailed(f"buildah {arguments[0]} failed ({answer.returncode}; log: {self.log}):\n{tail}")
        return answer.stdout.decode()

"""An image of one static program, as a docker archive, without a container engine.

    <layer>.tar   the program at /<name>
    <id>.json     what to run
    manifest.json which of these make which image

The same program gives the same bytes.
"""

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

USER = "65532:65532"
# the kernel's names ─► those in images
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write(program: Path, image: str, target: Path) -> None:
    """Write the archive of `image`, whose entry point is `program`, to `target`."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        _add(tar, program.name, program.read_bytes(), 0o755)
    content = layer.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    config = json.dumps(
        {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"], "User": USER, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [image], "Layers": [f"{digest}.tar"]}]).encode()
    with tarfile.open(target, mode="w") as tar:
        _add(tar, name, config)
        _add(tar, f"{digest}.tar", content)
        _add(tar, "manifest.json", manifest)


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))

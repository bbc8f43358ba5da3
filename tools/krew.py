"""An archive of `kubectl tidemark` for this platform and Python, and krew's manifest of all archives that are there.

    python -m tools.krew --out dist/krew --url https://HOST/FOLDER

    dist/krew/kubectl-tidemark-0.1.0-linux-amd64.tar.gz    kubectl-tidemark, python, lib/, LICENSE
    dist/krew/tidemark.yaml                                 names each archive of this version below --url

An archive has compiled packages, so each platform makes its own; the last call writes the manifest of all.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_VERSION = re.compile(r"(\d+\.\d+\.\d+)(?:\.?(dev|a|b|rc)(\d+))?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of archives and manifest")
    parser.add_argument("--url", required=True, help="the folder below which users find the archives")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        lib = Path(folder) / "lib"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(lib)]
        constraints = ["--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([*install, *constraints, f"{ROOT}[cli]"], check=True)
        version = semantic(distribution_version(lib))
        print(archive(lib, given.out, version))
    manifest = given.out / "tidemark.yaml"
    manifest.write_text(yaml.safe_dump(make_manifest(given.out, version, given.url), sort_keys=False))
    print(manifest)


def distribution_version(lib: Path) -> str:
    """The version of the package `tidemark` in a folder of packages."""
    (found,) = lib.glob("tidemark-*.dist-info")
    return found.name.removeprefix("tidemark-").removesuffix(".dist-info")


def semantic(version: str) -> str:
    """A version of Python's as a semantic one: 0.1.0.dev0 is 0.1.0-dev.0. Raises ValueError: it has no such form."""
    found = _VERSION.fullmatch(version)
    if found is None:
        raise ValueError(f"version {version} has no form as a semantic version")
    return found[1] + (f"-{found[2]}.{found[3]}" if found[2] else "")


def archive(lib: Path, out: Path, version: str) -> Path:
    """Pack the packages with what starts them. Two archives of the same files are the same bytes."""
    made = (
        out
        / f"kubectl-tidemark-{version}-{platform.system().lower()}-{ARCHITECTURES[platform.machine().lower()]}.tar.gz"
    )
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "python"
        python.write_text(f"python{sys.version_info.major}.{sys.version_info.minor}\n")
        with gzip.GzipFile(made, "wb", mtime=0) as compressed, tarfile.open(fileobj=compressed, mode="w") as packed:
            for path, name in (
                (ROOT / "krew" / "kubectl-tidemark", "kubectl-tidemark"),
                (python, "python"),
                (ROOT / "LICENSE", "LICENSE"),
                (ROOT / "cli" / "tidemark_cli" / "__main__.py", "lib/__main__.py"),
                *((path, f"lib/{path.relative_to(lib)}") for path in sorted(lib.rglob("*")) if path.is_file()),
            ):
                if "__pycache__" not in name:
                    packed.add(path, name, filter=_anonymous)
    return made


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def make_manifest(out: Path, version: str, url: str) -> dict[str, Any]:
    """The manifest of the archives of a version that are in a folder."""
    archives = sorted(out.glob(f"kubectl-tidemark-{version}-*-*.tar.gz"))
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "tidemark"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Query SQL views that Tidemark keeps up to date",
            "description": (
                "Queries, subscribes and copies of the views, tables and indexes that the operator Tidemark keeps up "
                "to date in a cluster; how far they are, and what holds them back.\n"
            ),
            "caveats": (
                f"It needs python{sys.version_info.major}.{sys.version_info.minor} on the PATH, or the path of one as "
                "TIDEMARK_PYTHON, and the operator in the cluster.\n"
            ),
            "platforms": [_platform(path, url) for path in archives],
        },
    }


def _platform(path: Path, url: str) -> dict[str, Any]:
    system, architecture = path.name.removesuffix(".tar.gz").split("-")[-2:]
    return {
        "selector": {"matchLabels": {"os": system, "arch": architecture}},
        "uri": f"{url.rstrip('/')}/{path.name}",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bin": "kubectl-tidemark",
    }


if __name__ == "__main__":
    main()

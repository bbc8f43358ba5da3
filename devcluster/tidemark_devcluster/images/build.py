"""Both images of the Dockerfile, as archives in the cache.

base ─► buildah, each target ─► <cache>/images/<target>.tar, with its size beside it once it was measured
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tidemark_devcluster.control_plane.layout import write_private
from tidemark_devcluster.errors import DevClusterError
from tidemark_devcluster.images import base, host, sizes
from tidemark_devcluster.images.buildah import Buildah
from tidemark_devcluster.programs.cache import GIB, BuildCache, require_disk
from tidemark_devcluster.programs.progress import ProgressOutput
from tidemark_devcluster.programs.recipe import SOURCE

TARGETS = ("operator", "replica")
CHECKOUT = SOURCE.parent
DOCKERFILE = CHECKOUT / "Dockerfile"
BUILD_DISK = 8 * GIB
# the greatest sizes that docs/guides/development.md allows
GOALS_MB = {"operator": 250, "replica": 450}


@dataclass(frozen=True)
class BuildOptions:
    """`python`: a base image to pull, None: made of Debian packages from `mirror`."""

    python: str | None = None
    mirror: str = base.MIRROR
    new_base: bool = False


@dataclass(frozen=True)
class Image:
    """An image that was built: its name, its archive, its size."""

    name: str
    archive: Path
    size: sizes.Size


def version(checkout: Path = CHECKOUT) -> str:
    """The tag of both images: the version of the application that the chart installs."""
    chart = checkout / "helm" / "tidemark" / "Chart.yaml"
    found = re.search(r"^appVersion: (\S+)$", chart.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise DevClusterError(f"{chart} names no appVersion, which is the images' tag")
    return found.group(1)


def image_name(target: str) -> str:
    return f"docker.io/tidemark/{target}:{version()}"


@dataclass(frozen=True)
class ImageBuildContext:
    """The settings of a build of images, while its lock is held."""

    buildah: Buildah
    folder: Path
    arguments: tuple[str, ...]
    progress: ProgressOutput

    def build(
        self, name: str, archive: str, target: str, dockerfile: Path = DOCKERFILE, options: Sequence[str] = ()
    ) -> Path:
        """Build one target; its archive is written only when the image is another than the last one."""
        ignored = dockerfile.with_name(f"{dockerfile.name}.dockerignore")
        arguments = [*self.arguments, *options, f"--file={dockerfile}"]
        arguments += [f"--ignorefile={ignored}"] if ignored.is_file() else []
        self.buildah.build(CHECKOUT, target, name, arguments, self.progress)
        path, identity = self.folder / f"{archive}.tar", self.buildah.identity(name)
        if not path.is_file() or _noted(path).get("identity") != identity:
            _note(path).unlink(missing_ok=True)
            self.buildah.save(name, path)
            write_private(_note(path), json.dumps({"identity": identity}))
        return path

    def measured(self, name: str, archive: Path) -> Image:
        """The image with its size, which is noted, too: measuring takes minutes on a busy machine."""
        noted = _noted(archive)
        if "size" not in noted:
            step = self.progress.step(f"measuring {name}", "a minute")
            noted["size"] = asdict(sizes.measure(archive))
            write_private(_note(archive), json.dumps(noted))
            step.done()
        return Image(name, archive, sizes.Size(**noted["size"]))


def _note(archive: Path) -> Path:
    """Metadata of an archive: the id of its image, and its size if that was computed."""
    return archive.with_suffix(".json")


def _noted(archive: Path) -> dict[str, Any]:
    return dict(json.loads(_note(archive).read_text(encoding="utf-8"))) if _note(archive).is_file() else {}


def packages_of(python: str, *, made_here: bool) -> tuple[str, ...]:
    """A base that was made here goes on with the mirror that it was made from; another one has Debian as the Dockerfile
    says."""
    return (f"--build-arg=PYTHON={python}", *(["--build-arg=SNAPSHOT=now"] if made_here else []))


@contextmanager
def workshop(
    options: BuildOptions, environ: Mapping[str, str], progress: ProgressOutput
) -> Iterator[ImageBuildContext]:
    """One build at a time, with the base image that was asked for and what builds need of this machine."""
    cache = BuildCache.of(environ)
    folder = cache.root / "images"
    require_disk(folder, BUILD_DISK, "building images", "TIDEMARK_CACHE")
    with (
        cache.locked("images", lambda: progress.say("another process builds images: waiting for it")),
        tempfile.TemporaryDirectory(prefix="tidemark-build-") as temporary,
    ):
        folder.mkdir(parents=True, exist_ok=True)
        buildah = Buildah(folder / "storage", cache.log("images"), environ)
        buildah.prune()
        python = options.python or base.ensure(buildah, options.mirror, progress, options.new_base)
        mine = host.read(environ)
        pip_conf = Path(temporary) / "pip.conf"
        pip_conf.write_text(mine.pip_conf, encoding="utf-8")
        arguments = (*packages_of(python, made_here=not options.python), *host.volumes(mine, pip_conf))
        yield ImageBuildContext(buildah, folder, arguments, progress)


def build_all(options: BuildOptions, environ: Mapping[str, str], progress: ProgressOutput) -> dict[str, Image]:
    """Both images."""
    with workshop(options, environ, progress) as shop:
        archives = {target: shop.build(image_name(target), target, target) for target in TARGETS}
        return {target: shop.measured(image_name(target), archive) for target, archive in archives.items()}


def table(images: Mapping[str, Image]) -> str:
    """A summary for people: one line per image."""
    lines = [f"{'image':<44}{'gzip':>8}{'goal':>8}{'on a node':>12}"]
    for target, image in images.items():
        compressed, unpacked = image.size.compressed / 1e6, image.size.unpacked / 1e6
        lines.append(f"{image.name:<44}{compressed:>5.0f} MB{GOALS_MB[target]:>5} MB{unpacked:>9.0f} MB")
    return "\n".join(lines)

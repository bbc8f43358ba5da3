"""The sizes of an image: as it lies in a registry, each layer compressed by gzip, and as it lies on a node."""

import json
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

CHUNK = 1 << 20
GZIP_LEVEL = 6


@dataclass(frozen=True)
class Size:
    """The sizes of an image, in bytes."""

    compressed: int
    unpacked: int


def measure(archive: Path) -> Size:
    """The size of a docker archive, whose layers are not compressed."""
    with tarfile.open(archive) as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None, "a docker archive has a manifest"
        layers = json.load(manifest)[0]["Layers"]
        sizes = [_measure_layer(tar, layer) for layer in layers]
    return Size(sum(size.compressed for size in sizes), sum(size.unpacked for size in sizes))


def _measure_layer(tar: tarfile.TarFile, name: str) -> Size:
    content: IO[bytes] | None = tar.extractfile(name)
    assert content is not None, "the manifest names files of the archive"
    compressor = zlib.compressobj(GZIP_LEVEL, wbits=zlib.MAX_WBITS | 16)
    compressed = unpacked = 0
    while chunk := content.read(CHUNK):
        unpacked += len(chunk)
        compressed += len(compressor.compress(chunk))
    return Size(compressed + len(compressor.flush()), unpacked)

"""`tidemark-devcluster images`: both images of the Dockerfile, with buildah, and how large they are."""

import argparse
import json
import os
import sys
from typing import Any

from tidemark_devcluster.images import base
from tidemark_devcluster.images.build import BuildOptions, build_all, table
from tidemark_devcluster.node.host_requirements import require_image_tools
from tidemark_devcluster.programs.progress import ProgressOutput


def add_parser(commands: Any) -> None:
    """Add `images` to the commands of `tidemark-devcluster`."""
    images = commands.add_parser("images", help="build the images with buildah, and print their sizes (needs root)")
    images.add_argument("--python", metavar="IMAGE", help="base image to pull (one is made of Debian packages)")
    images.add_argument("--mirror", default=base.MIRROR, help="of Debian, for that base (%(default)s)")
    images.add_argument("--new-base", action="store_true", help="make that base anew")
    images.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Build and tell."""
    require_image_tools()
    chosen = BuildOptions(options.python, options.mirror, options.new_base)
    images = build_all(chosen, os.environ, ProgressOutput(sys.stderr))
    if options.json:
        print(
            json.dumps(
                {
                    target: {
                        "image": image.name,
                        "archive": str(image.archive),
                        "gzip_bytes": image.size.compressed,
                        "bytes": image.size.unpacked,
                    }
                    for target, image in images.items()
                }
            )
        )
    else:
        print(table(images))
    return 0

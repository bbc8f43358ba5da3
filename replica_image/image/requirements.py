"""`requirements.py EXTRA...`: what pyproject.toml asks for, to be installed before our own code is there."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
wanted = [
    *project["dependencies"],
    *(line for extra in sys.argv[1:] for line in project["optional-dependencies"][extra]),
]
print("\n".join(dict.fromkeys(wanted)))

"""Folders that no source reads, since their files are the machine's or the pod's own.

    /etc ...           keys of certificates, credentials of object stores, the service account's token
    /scratch, /local   arrangements, and what Spark sets aside: other Dataflows' rows

The operator refuses such a path where it is written; a replica refuses what leads there by a symbolic link.
"""

from __future__ import annotations

FORBIDDEN_FOLDERS = ("/etc", "/proc", "/sys", "/dev", "/run", "/var/run", "/scratch", "/local")


def forbidden_folder(path: str) -> str | None:
    """The one of these that the absolute path, without `.` and `..`, is or is below."""
    plain = f"/{'/'.join(segment for segment in path.split('/') if segment)}/"
    return next((folder for folder in FORBIDDEN_FOLDERS if plain.startswith(f"{folder}/")), None)

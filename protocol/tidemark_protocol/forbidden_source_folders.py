"""Folders that no source may read, since their files belong to the machine or to the pod.

    /etc ...           keys of certificates, credentials of object stores, the token of the service account
    /scratch, /local   arrangements and Spark's temporary files, which hold rows of other Dataflows

The operator refuses such a path in a resource. A replica refuses a path that leads there by a symbolic link.
"""

from __future__ import annotations

FORBIDDEN_FOLDERS = ("/etc", "/proc", "/sys", "/dev", "/run", "/var/run", "/scratch", "/local")


def forbidden_folder(path: str) -> str | None:
    """The forbidden folder that the absolute path (without `.` and `..`) is or is below; None if there is none."""
    plain = f"/{'/'.join(segment for segment in path.split('/') if segment)}/"
    return next((folder for folder in FORBIDDEN_FOLDERS if plain.startswith(f"{folder}/")), None)

"""The state folder of one control plane (mode 0700, because it holds keys), and its files.

    lock            held while a command starts or ends servers
    settings.json   the API server's port, so that a restart keeps the address
    tokens.csv      the users of the API server
    sa.key          signs service account tokens
    pki/            the serving certificate, made by the API server itself
    etcd/           the data
    etcd.sock       where etcd listens: no port, no other user
    pids/, log/     one file per server, and for their supervisor
    restarts.json   how often a supervisor has restarted each server
    bin/            kubectl, for PATH
    kubeconfig      for the administrator (or at the requested path)
    kubeconfig-outsider   for an authenticated user without any right

Files are written atomically, so a command that dies leaves a valid folder.
"""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tidemark_devcluster.errors import StateUnusable

VERSION = 1
FOLDERS = ("pids", "log", "etcd", "bin")
MADE_BY_OTHERS = ("pki", "kubectl")
SOCKETS = ("etcd.sock", "peer.sock")


@dataclass(frozen=True)
class ControlPlaneLayout:
    """The paths of one state folder."""

    root: Path
    kubeconfig: Path

    @staticmethod
    def of(root: Path, kubeconfig: Path | None = None) -> "ControlPlaneLayout":
        root = root.absolute()
        return ControlPlaneLayout(root, kubeconfig.absolute() if kubeconfig else root / "kubeconfig")

    @property
    def lock(self) -> Path:
        """The lock file. It is made first, and marks a folder as a control plane's."""
        return self.root / "lock"

    @property
    def tokens(self) -> Path:
        return self.root / "tokens.csv"

    @property
    def service_account_key(self) -> Path:
        return self.root / "sa.key"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def certificate(self) -> Path:
        """The serving certificate together with the authority that signed it."""
        return self.pki / "apiserver.crt"

    @property
    def outsider_kubeconfig(self) -> Path:
        return self.root / "kubeconfig-outsider"

    @property
    def settings(self) -> Path:
        return self.root / "settings.json"

    @property
    def restarts(self) -> Path:
        """The number of restarts of each server by a supervisor (supervision/record.py)."""
        return self.root / "restarts.json"

    @property
    def kubectl(self) -> Path:
        """A link, so that the folder can be put on PATH."""
        return self.root / "bin" / "kubectl"

    def pid_file(self, name: str) -> Path:
        return self.root / "pids" / name

    def log(self, name: str) -> Path:
        return self.root / "log" / f"{name}.log"

    def make(self) -> None:
        """Create the folders, in a new or empty folder or in one that is a control plane's already."""
        try:
            if self.root.is_dir() and any(self.root.iterdir()) and not self.lock.exists():
                raise StateUnusable(
                    f"{self.root} is not empty and not a control plane's: choose another folder with --state"
                )
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.root.chmod(0o700)
            self.lock.touch()
            for name in FOLDERS:
                (self.root / name).mkdir(mode=0o700, exist_ok=True)
            self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateUnusable(
                f"cannot use {self.root} as state folder ({error.strerror}): choose another with --state"
            ) from error

    def remove(self) -> None:
        """Remove what a control plane put here, and the folder if nothing else is in it."""
        for name in FOLDERS + MADE_BY_OTHERS:
            shutil.rmtree(self.root / name, ignore_errors=True)
        for path in (self.settings, self.restarts, self.tokens, self.service_account_key, self.outsider_kubeconfig):
            path.unlink(missing_ok=True)
        for path in (self.kubeconfig, *(self.root / name for name in SOCKETS), self.lock):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.root.rmdir()

    def kubectl_for(self, kubeconfig: Path) -> list[str]:
        """kubectl with the options of this API server."""
        return [str(self.kubectl), f"--kubeconfig={kubeconfig}", f"--cache-dir={self.root / 'kubectl'}"]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One command at a time; the kernel lets go of the lock when its holder dies."""
        with self.lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield

    def stored_port(self) -> int | None:
        """The port of the last start; None before the first."""
        try:
            settings = json.loads(self.settings.read_text(encoding="utf-8"))
            if settings["version"] != VERSION:
                raise StateUnusable(
                    f"{self.root} was written by another version of Tidemark (state {settings['version']}, "
                    f"this is {VERSION}): remove the folder, or choose another with --state"
                )
            return int(settings["api_port"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise StateUnusable(
                f"{self.settings} is not a control plane's settings: remove {self.root}, or choose another "
                "state folder with --state"
            ) from error

    def store_port(self, port: int) -> None:
        write_private(self.settings, json.dumps({"version": VERSION, "api_port": port}) + "\n")


def link_program(link: Path, binary: Path) -> None:
    """Point a link at this binary."""
    if binary == link or (link.is_symlink() and link.readlink() == binary):
        return  # the link itself, where PATH begins with its folder
    beside = link.with_name(f".{link.name}")
    beside.unlink(missing_ok=True)
    beside.symlink_to(binary)
    os.replace(beside, link)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as output:
            output.write(text)
            output.flush()
            os.fsync(output.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise

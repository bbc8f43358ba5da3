"""The local orchestrator: replicas and the planner as subprocesses that outlive the operator, each in its own session.

    STATE/replicas/<uid>/     home of a replica (see process_record.py)
    STATE/planner/            home of the planner
    STATE/certificates/       with --mutual-tls (certificates/files.py)
    STATE/source-data/        what load generators have made, shared by the replicas
    STATE/stores/             credentials for object stores (reconcile/secret_copies.py), a folder for each Secret
    STATE/source-secrets/     Secrets of sources, a folder for each instance, in it a folder for each Secret
    SOCKETS/<16 hex>          one unix socket each, in a folder that only this user can enter

The next operator finds the homes, adopts the processes whose shape is wanted, and drops those without a resource. A
socket path is limited to 107 bytes. If STATE is too long, the sockets are in the system's folder for temporary files.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from tidemark_operator.certificates.files import FolderStore, path_of
from tidemark_operator.certificates.names import PLANNER as PLANNER_CERTIFICATE
from tidemark_operator.certificates.names import replica_secret
from tidemark_operator.certificates.store import SecretLocation
from tidemark_operator.errors import OperatorError
from tidemark_operator.orchestrator.interface import (
    ICEBERG,
    SOURCE_DATA,
    SOURCE_SECRETS,
    STORE_SETTINGS,
    Observation,
    ReplicaSpec,
)
from tidemark_operator.orchestrator.local.process_record import Home
from tidemark_operator.orchestrator.local.supervised_process import Child, Shape
from tidemark_operator.resources.manifest.replica import UpdateStrategy
from tidemark_protocol import tracing

STEP_SECONDS = 0.25
MAX_SOCKET_BYTES = 100
PLANNER = "planner"
REPLICAS = "replicas"
# environment variables that every child inherits: paths of programs and libraries, and nothing secret
PASSED_ON = (
    "PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME", "PYTHONPATH", "VIRTUAL_ENV", "SPARK_HOME",
    "PYSPARK_PYTHON", "SPARK_SUBMIT_OPTS", "LD_LIBRARY_PATH", *tracing.ENDPOINTS,
)  # fmt: skip
# environment variables for replicas alone, which read and write shards: the address of the object store
STORE = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ALLOW_HTTP")
# and the credentials for it, unless a Secret provides them
STORE_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE",
)  # fmt: skip


class ProcessOrchestrator:
    """An Orchestrator (interface.py) whose replicas are subprocesses."""

    def __init__(
        self,
        state: Path,
        environment: Mapping[str, str] = os.environ,
        planner: bool = True,
        certificates: Path | None = None,
    ) -> None:
        """`planner` False: the planner runs elsewhere. `certificates`: the folder of the children's certificates.
        Raises
        OperatorError if another user owns the folder of sockets."""
        self._state, self._certificates, self.news = state.absolute(), certificates, asyncio.Event()
        self._sockets = socket_folder(self._state)
        self._environment = {name: environment[name] for name in PASSED_ON if name in environment}
        self._store = {name: environment[name] for name in STORE if name in environment}
        self._store_credentials = {name: environment[name] for name in STORE_CREDENTIALS if name in environment}
        self.stores = FolderStore(self._state / "stores")
        self.source_secrets = self._state / "source-secrets"
        for folder in (self._state, self._replicas):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._children = {home.name: Child(Home(home)) for home in sorted(self._replicas.iterdir())}
        self._planner = Child(Home(self._state / PLANNER))
        self._planner.want(self._planner_shape() if planner else None)

    @property
    def planner_address(self) -> str:
        return f"unix://{self._socket(PLANNER)}"

    def kill_planner(self) -> None:
        """Kill a planner that takes too long; it starts again. The planner has no state."""
        self._planner.kill()

    async def adopt(self) -> None:
        """Nothing to do: the constructor has read the homes."""

    def refusal(self, replica: ReplicaSpec) -> str | None:
        """Processes support no volumes, requests or executors, and no second process beside the first."""
        pod = replica.pod
        unsupported = {
            "executors": pod.executors.instances,
            "scratch.claimName": pod.scratch.claim,
            "volumes": pod.volumes,
            "resources.requests": pod.requests.cpu or pod.requests.memory,
            "updateStrategy: Surge": replica.strategy is UpdateStrategy.SURGE,
        }
        names = ", ".join(f"spec.{name}" for name, given in unsupported.items() if given)
        return (
            f"this operator runs replicas as local processes, which do not support {names}: remove it"
            if names
            else None
        )

    def observe_planner(self) -> Observation:
        return self._planner.observe()

    def explain_planner(self) -> str:
        """The reason why the planner does not answer: its last exit; empty if it has never ended."""
        last = self.observe_planner().last_exit
        if last is None:
            return ""
        log = self._state / PLANNER / "log"
        code = "" if last.code is None else f" with exit code {last.code}"
        return f"its process last ended{code} and is being restarted (log: {log})"

    def ensure(self, replica: ReplicaSpec) -> None:
        child = self._children.setdefault(replica.key, Child(Home(self._replicas / replica.key)))
        child.want(self._replica_shape(replica))

    def drop(self, key: str) -> None:
        if child := self._children.get(key):
            child.want(None)

    def retain(self, keys: Collection[str]) -> None:
        for key in self._children.keys() - set(keys):
            self.drop(key)

    def observe(self, key: str) -> tuple[Observation, ...]:
        child = self._children.get(key)
        return (child.observe(),) if child else ()

    def take_over(self, key: str) -> None:
        """Nothing to do: a replica has one process at most."""

    async def run(self) -> None:
        while True:
            await asyncio.to_thread(self.step, int(time.time() * 1000))
            self.news.set()
            await asyncio.sleep(STEP_SECONDS)

    def step(self, now_ms: int) -> None:
        """Take one step of every child; `now_ms`: milliseconds since 1970."""
        self._planner.step(now_ms)
        for key, child in list(self._children.items()):
            child.step(now_ms)
            if child.is_gone:
                child.remove()
                self._socket(key).unlink(missing_ok=True)
                del self._children[key]

    @property
    def _replicas(self) -> Path:
        return self._state / REPLICAS

    def _socket(self, key: str) -> Path:
        return self._sockets / hashlib.sha256(key.encode()).hexdigest()[:16]

    def _replica_shape(self, replica: ReplicaSpec) -> Shape:
        socket = self._socket(replica.key)
        scratch = self._replicas / replica.key / "scratch"
        command = replica_command(replica, f"unix://{socket}", scratch)
        command += self._tls(SecretLocation(replica_secret(replica.name), replica.namespace))
        environment = {**self._environment, **self._store, SOURCE_DATA: str(self._state / "source-data")}
        digest_extras: tuple[str, ...] = ()
        if replica.pod.credentials:
            folder = str(self.stores.path(SecretLocation(replica.pod.credentials, replica.namespace)))
            environment[STORE_SETTINGS] = folder
            digest_extras = (folder,)
        else:
            environment |= self._store_credentials
        if replica.pod.source_secrets:
            folder = str(source_secrets_folder(self.source_secrets, replica.namespace, replica.instance.name))
            environment[SOURCE_SECRETS] = folder
            digest_extras = (*digest_extras, folder, *replica.pod.source_secrets)
        if replica.pod.iceberg:
            environment[ICEBERG] = replica.pod.iceberg
            digest_extras = (*digest_extras, replica.pod.iceberg)
        return Shape(command, environment, socket, digest_extras)

    def _planner_shape(self) -> Shape:
        socket = self._socket(PLANNER)
        scratch = Home(self._state / PLANNER).scratch
        command = (sys.executable, "-m", "tidemark_planner", "--listen", f"unix://{socket}", "--scratch", str(scratch))
        return Shape(command + self._tls(SecretLocation(PLANNER_CERTIFICATE)), self._environment, socket)

    def _tls(self, place: SecretLocation) -> tuple[str, ...]:
        return () if self._certificates is None else ("--tls-dir", str(path_of(self._certificates, place)))


def source_secrets_folder(folder: Path, namespace: str, instance: str) -> Path:
    """The folder of an instance's Secrets of sources. An instance's name has no dot."""
    return folder / f"{namespace}.{instance}"


def replica_command(replica: ReplicaSpec, listen: str, scratch: Path) -> tuple[str, ...]:
    """The command line of a replica."""
    options = {
        "--listen": listen,
        "--scratch": str(scratch),
        "--name": f"{replica.namespace}/{replica.name}",
        "--cores": str(replica.cores),
        "--memory": str(replica.memory_bytes),
    }
    words = (word for option in options.items() for word in option)
    return (sys.executable, "-m", "tidemark_replica", *words, *replica.engine)


def socket_folder(state: Path) -> Path:
    """Make a folder of mode 0700 whose socket paths are short enough. Raises OperatorError if another user owns it."""
    folder = state / "s"
    if len(os.fsencode(folder)) + 17 > MAX_SOCKET_BYTES:
        name = hashlib.sha256(os.fsencode(state)).hexdigest()[:12]
        folder = Path(tempfile.gettempdir()) / f"tidemark-{os.getuid()}-{name}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise OperatorError(
            f"{folder} holds the sockets of replicas and must belong to this user alone (mode 0700): remove it"
        )
    return folder

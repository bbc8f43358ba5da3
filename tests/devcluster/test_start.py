"""Starting servers: ports, servers that die at once, and cleanup after a failed start. No real server needed."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.control_plane.credentials import Tokens, kubeconfig, service_account_key
from tidemark_devcluster.control_plane.layout import ControlPlaneLayout, write_private
from tidemark_devcluster.control_plane.start import StartOptions, choose_port
from tidemark_devcluster.errors import PortTaken, StartFailed, StateUnusable
from tidemark_devcluster.main import main
from tidemark_devcluster.programs.build import Binaries


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port of loopback on which another program listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def binaries(folder: Path, etcd: str = "exec sleep 300", apiserver: str = "exec sleep 300") -> Binaries:
    """Servers that are shell scripts."""
    made = {}
    for name, script in (("etcd", etcd), ("kube-apiserver", apiserver)):
        made[name] = folder / name
        made[name].write_text(f"#!/bin/sh\n{script}\n")
        made[name].chmod(0o755)
    return Binaries(made["etcd"], made["kube-apiserver"], folder / "none", folder / "kubectl")


def test_a_port_that_was_asked_for_and_is_taken_is_refused_with_the_remedy(taken_port: int) -> None:
    """A port that somebody chose is never replaced silently."""
    with pytest.raises(PortTaken, match=f"port {taken_port} .* is taken by another program: give another"):
        choose_port(taken_port, None)


def test_the_port_of_the_last_time_is_kept_while_it_is_free(taken_port: int) -> None:
    """The kubeconfigs stay valid; a port lost to another program is replaced."""
    free = choose_port(None, None)
    assert choose_port(None, free) == free
    assert choose_port(None, taken_port) != taken_port


def test_a_server_that_dies_at_once_fails_the_start_with_its_last_words(tmp_path: Path) -> None:
    """No waiting for a bound: the log's end is in the error, and the other server is ended."""
    plane = ControlPlane(tmp_path / "state")
    with pytest.raises(StartFailed, match="kube-apiserver ended while starting; its log ends:\nno such flag"):
        plane.up(binaries(tmp_path, apiserver="echo no such flag; exit 1"), StartOptions())
    assert plane.status().pids == {}


def test_the_last_words_are_those_of_this_start(tmp_path: Path) -> None:
    """The log goes on from earlier starts; what they said is not taken for this one's reason."""
    plane = ControlPlane(tmp_path / "state")
    plane.layout.make()
    plane.layout.log("kube-apiserver").write_text("bind: address already in use\n")
    with pytest.raises(StartFailed, match=r"its log ends:\nno such flag$"):
        plane.up(binaries(tmp_path, apiserver="echo no such flag; exit 1"), StartOptions())


def test_a_port_lost_between_the_look_and_the_listening_is_tried_again(tmp_path: Path) -> None:
    """Three times, for a port that nobody asked for; the error then says so."""
    script = 'echo "$*" >>"$HOME/../calls"; echo listen tcp: bind: address already in use; exit 1'
    plane = ControlPlane(tmp_path / "state")
    with pytest.raises(StartFailed, match="3 free ports were taken by others before use"):
        plane.up(binaries(tmp_path, apiserver=script), StartOptions())
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len({word for call in calls for word in call.split() if word.startswith("--secure-port=")}) == 3


def test_a_state_folder_of_another_version_is_not_touched(tmp_path: Path) -> None:
    """Nor guessed at: the message names the folder and what to do."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "lock").touch()
    (state / "settings.json").write_text(json.dumps({"version": 99, "api_port": 1}))
    with pytest.raises(StateUnusable, match=r"written by another version of Tidemark .* remove the folder"):
        ControlPlane(state).up(binaries(tmp_path), StartOptions())
    assert list(state.glob("etcd/*")) == []


def test_a_folder_that_holds_something_else_is_neither_used_nor_changed(tmp_path: Path) -> None:
    """`--state ~` is a mistake: nothing is written, nobody's mode is changed, `down --delete` deletes nothing."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    (folder / "kubeconfig").write_text("mine")
    plane = ControlPlane(folder)
    with pytest.raises(StateUnusable, match="is not empty and not a control plane's: choose another"):
        plane.up(binaries(tmp_path), StartOptions())
    plane.delete()
    assert [path.name for path in folder.iterdir()] == ["kubeconfig"]
    assert folder.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("stranger", [False, True])
def test_delete_removes_the_files_of_a_control_plane_and_no_other(tmp_path: Path, stranger: bool) -> None:
    """A file that somebody put beside it stays, and so does the folder then."""
    state = tmp_path / "state"
    plane = ControlPlane(state)
    with pytest.raises(StartFailed):
        plane.up(binaries(tmp_path, apiserver="exit 1"), StartOptions())
    if stranger:
        (state / "notes").touch()
    plane.delete()
    assert [path.name for path in state.glob("*")] == (["notes"] if stranger else [])
    assert state.exists() == stranger


def test_secret_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    """Tokens, the key, the kubeconfigs; the folder itself, too."""
    layout = ControlPlaneLayout.of(tmp_path / "state")
    layout.make()
    write_private(layout.tokens, "secret")
    assert layout.tokens.stat().st_mode & 0o777 == 0o600
    assert layout.root.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in layout.root.iterdir() if path.is_file()} == {"lock", "tokens.csv"}


def test_tokens_are_random_and_read_back() -> None:
    """No two planes share a token."""
    tokens = Tokens.random()
    assert Tokens.from_csv(tokens.as_csv()) == tokens
    assert tokens != Tokens.random()
    assert tokens.administrator != tokens.outsider
    assert service_account_key() != service_account_key()


def test_a_kubeconfig_needs_no_other_file() -> None:
    """The authority is inside, so it can be copied elsewhere."""
    document = json.loads(kubeconfig("https://127.0.0.1:1", "PEM", "administrator", "t"))
    assert document["clusters"][0]["cluster"]["certificate-authority-data"] == "UEVN"
    assert document["users"][0]["user"] == {"token": "t"}


def test_the_command_line_says_an_error_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback; exit status 1."""
    monkeypatch.setitem(os.environ, "KUBEBUILDER_ASSETS", str(tmp_path))
    assert main(["up", "--state", str(tmp_path / "state")]) == 1
    output = capsys.readouterr().err
    assert output.startswith("tidemark-devcluster: KUBEBUILDER_ASSETS=")
    assert output.count("\n") == 1


def test_down_and_status_without_a_control_plane_are_no_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`down` twice is `down` once; `status` says stopped, with an exit status of its own."""
    assert main(["down", "--state", str(tmp_path / "state")]) == 0
    assert main(["status", "--state", str(tmp_path / "state"), "--json"]) == 3
    status = json.loads(capsys.readouterr().out)
    assert (status["ready"], status["pids"], status["server"]) == (False, {}, None)

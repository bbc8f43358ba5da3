"""Building images, as text and files: the build's view of this machine, and the files that an image leaves out."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pyspark
import pytest

from tidemark_devcluster.images import base, host, sizes
from tidemark_devcluster.images.build import CHECKOUT, image_name, version

PREPARE = CHECKOUT / "replica_image" / "image" / "prepare.py"
LEFT_OUT = ("left-out-of-both.txt", "left-out.txt")


@pytest.fixture(scope="module")
def prepare() -> ModuleType:
    """The program that the Dockerfile runs; it belongs to no package."""
    spec = importlib.util.spec_from_file_location("prepare", PREPARE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pip_in_a_build_goes_where_this_machines_goes(tmp_path: Path) -> None:
    """Its index and its authorities; what else was set is nobody else's business."""
    authorities = tmp_path / "ca.pem"
    authorities.touch()
    listed = (
        f"global.cert='/old'\nglobal.index-url='https://a.example/simple'\n:env:.cert='{authorities}'\n:env:.x='y'\n"
    )
    made = host.config(host.parse(listed), {})
    assert made.authorities == authorities
    assert made.pip_conf.splitlines() == [
        "[global]",
        "index-url = https://a.example/simple",
        f"cert = {host.AUTHORITIES}",
    ]
    assert f"--volume={authorities}:{host.AUTHORITIES}:ro" in host.volumes(made, tmp_path / "pip.conf")


def test_a_machine_without_settings_adds_nothing(tmp_path: Path) -> None:
    """A named file that is not there is not mounted."""
    made = host.config({}, {"SSL_CERT_FILE": str(tmp_path / "none")})
    assert made == host.HostConfig("[global]\n", None)


def test_images_carry_the_version_that_the_chart_installs() -> None:
    """With a registry's name, as a node stores it."""
    assert image_name("replica") == f"docker.io/tidemark/replica:{version()}"


def test_every_pattern_that_an_image_leaves_out_is_still_there(prepare: ModuleType) -> None:
    """A new version of Spark with other names is noticed here, before an image is built."""
    packages = Path(pyspark.__file__).parents[1]
    for name in LEFT_OUT:
        for pattern in prepare.patterns(PREPARE.with_name(name).read_text()):
            assert list(packages.glob(pattern)), pattern


def test_a_pattern_that_matches_nothing_stops_the_build(prepare: ModuleType, tmp_path: Path) -> None:
    """Others of the list are left out; those on no list stay."""
    (tmp_path / "jars").mkdir()
    for name in ("kept-1.jar", "dropped-1.jar"):
        (tmp_path / "jars" / name).touch()
    prepare.leave_out(tmp_path, "# why\njars/dropped-*\n")
    assert os.listdir(tmp_path / "jars") == ["kept-1.jar"]
    with pytest.raises(SystemExit, match=r"dropped-\* matches nothing"):
        prepare.leave_out(tmp_path, "jars/dropped-*\n")


def test_a_jar_is_stored_with_one_time_and_without_foreign_libraries(prepare: ModuleType, tmp_path: Path) -> None:
    """Twice the same bytes: the class-data archive of one build fits the jars of another."""
    jar = tmp_path / "a.jar"
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as made:
        for name in ("A.class", "META-INF/X.SF", "native/win/x86_64/a.dll", "native/linux/x86_64/a.so"):
            made.writestr(name, b"0" * 100)
    prepare.store(jar)
    first = jar.read_bytes()
    with zipfile.ZipFile(jar) as stored:
        assert sorted(stored.namelist()) == ["A.class", "native/linux/x86_64/a.so"]
        assert {entry.compress_type for entry in stored.infolist()} == {zipfile.ZIP_STORED}
    prepare.store(jar)
    assert jar.read_bytes() == first
    assert jar.stat().st_mtime == prepare.WHEN_SECONDS


@pytest.mark.parametrize(
    ("machine", "kept"),
    [
        ("x86_64", {"linux/amd64/a.so", "native/Linux/x86_64/a.so", "META-INF/native/lib_linux_x86_64.so"}),
        ("aarch64", {"linux/aarch64/a.so", "META-INF/native/lib_linux_aarch_64.so"}),
    ],
)
def test_libraries_for_other_processors_stay_away(prepare: ModuleType, machine: str, kept: set[str]) -> None:
    """A library that names no processor stays, and so does one with a name that nobody knows."""
    names = kept | {"META-INF/native/linux64/b.so", "linux/new/b.so", "A.class", "x86/A.class"}
    foreign = {"native/Linux/x86_64-musl/a.so", "linux/ppc64le/a.so", "linux/arm/a.so", "linux/i386/a.so"}
    assert {name for name in names | foreign if not prepare.is_foreign(name, machine)} == names
    assert not any(prepare.is_foreign(name, "a new one") for name in names | foreign)


def test_documentation_goes_and_licences_stay(tmp_path: Path) -> None:
    """The base image is made of Debian's packages."""
    for name in ("usr/share/doc/a/copyright", "usr/share/doc/a/NEWS", "usr/share/doc/b/examples/x", "var/log/y"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "etc/dpkg/dpkg.cfg.d").mkdir(parents=True)
    base.trim(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"usr/share/doc/a/copyright", "etc/dpkg/dpkg.cfg.d/tidemark"}


def test_the_size_of_an_image_is_that_of_its_layers_compressed(tmp_path: Path) -> None:
    """Configuration and manifest are some hundred bytes."""
    layers = {"a.tar": b"0" * 100_000, "b.tar": os.urandom(1000)}
    with tarfile.open(tmp_path / "image.tar", "w") as tar:
        manifest = json.dumps([{"Layers": list(layers)}]).encode()
        for name, content in (layers | {"manifest.json": manifest}).items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    size = sizes.measure(tmp_path / "image.tar")
    assert size.unpacked == 101_000
    assert 1000 < size.compressed < 2000

"""`prepare.py SITE_PACKAGES [SPARK]`: makes what pip installed into what an image holds.

leave out   what left-out-of-both.txt names

With SPARK, for the replica's image:

leave out   what left-out.txt names
store       jars again, without deflate and with one time for all: layers are compressed as a whole anyway, and
            a class-data archive knows a jar by its size and time
write       SPARK/classpath and SPARK/options, so that starting a JVM needs no other JVM to find them out
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
JAVA = "/opt/java/bin/java"
WHEN = (2020, 1, 1, 0, 0, 0)
WHEN_SECONDS = 1577836800
# native libraries for other systems than Linux, and for processors that are known to be others
FOREIGN = re.compile(
    r"(^|/)(win|windows|darwin|osx|mac|aix|freebsd|sunos)[^/]*/.*\.(so|dll|dylib|jnilib|a)$", re.IGNORECASE
)
PROCESSOR = re.compile(
    r"[/_](android-\w+|x86_64-musl|x86_64|amd64|aarch_?64|armv?[67]?|x86|i386|loongarch64|mips64|ppc(?:64(?:le)?)?"
    r"|riscv64|s390x)(?:/[^/]+)?\.so$"
)
NAMES = {"x86_64": {"x86_64", "amd64"}, "aarch64": {"aarch64", "aarch_64"}}
SIGNATURE = re.compile(r"META-INF/[^/]*\.(SF|RSA|DSA)$")
SUBMIT = "org.apache.spark.deploy.SparkSubmit"


def main(packages: Path, spark: Path | None = None) -> None:
    leave_out(packages, (HERE / "left-out-of-both.txt").read_text(encoding="utf-8"))
    if spark is not None:
        prepare_spark(packages, spark)


def prepare_spark(packages: Path, spark: Path) -> None:
    leave_out(packages, (HERE / "left-out.txt").read_text(encoding="utf-8"))
    jars = packages / "pyspark" / "jars"
    for jar in sorted(jars.glob("*.jar")):
        store(jar)
    spark.mkdir(parents=True, exist_ok=True)
    paths = [str(jar) for jar in sorted(jars.glob("*.jar"))]
    (spark / "classpath").write_text(":".join(paths), encoding="utf-8")
    (spark / "options").write_text("".join(f"{option}\n" for option in launch_options(packages)), encoding="utf-8")
    shutil.copy(HERE / "spark-class", packages / "pyspark" / "bin" / "spark-class")
    (spark / "home").symlink_to(packages / "pyspark")


def patterns(text: str) -> list[str]:
    """The lines that are neither empty nor comments."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def leave_out(packages: Path, text: str) -> None:
    for pattern in patterns(text):
        found = list(packages.glob(pattern))
        if not found:
            raise SystemExit(f"left out: {pattern} matches nothing in {packages}: has it another name now?")
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def store(jar: Path) -> None:
    """Write a jar anew: the same files, not deflated, without signatures, which they no longer are."""
    beside = jar.with_suffix(".stored")
    with zipfile.ZipFile(jar) as old, zipfile.ZipFile(beside, "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            if not is_foreign(entry.filename) and not SIGNATURE.search(entry.filename):
                copy = zipfile.ZipInfo(entry.filename, WHEN)
                copy.external_attr = entry.external_attr
                new.writestr(copy, b"" if entry.is_dir() else old.read(entry))
    os.replace(beside, jar)
    os.utime(jar, (WHEN_SECONDS, WHEN_SECONDS))


def is_foreign(name: str, machine: str = platform.machine()) -> bool:
    """Whether this file of a jar is a native library of another system or processor; on a machine that is not in NAMES
    those of all processors stay."""
    found = PROCESSOR.search(name)
    return bool(FOREIGN.search(name) or (machine in NAMES and found and found[1] not in NAMES[machine]))


def launch_options(packages: Path) -> list[str]:
    """The options of the JVM that Spark's own launcher gives a driver, such as which modules to open."""
    home = packages / "pyspark"
    launcher = [JAVA, "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main", SUBMIT, "pyspark-shell"]
    (core,) = (home / "jars").glob("spark-core_*.jar")
    environment = {
        "PATH": os.environ["PATH"],
        "SPARK_HOME": str(home),
        "JAVA_HOME": "/opt/java",
        "SPARK_SCALA_VERSION": core.name.removeprefix("spark-core_").partition("-")[0],
    }
    output = subprocess.run(launcher, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    words = [word.strip() for word in output.split("\0") if word.strip()]
    options = words[words.index("-cp") + 2 : words.index(SUBMIT)]
    return [option for option in options if not option.startswith("-Xmx")]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

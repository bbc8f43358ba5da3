# Two images from one checkout:
#
#   docker build --target operator -t tidemark/operator:0.1.0-dev .     Python alone: no JVM, no access to data
#   docker build --target replica  -t tidemark/replica:0.1.0-dev .      Spark and a Java 17 runtime; the planner too
#
#   python ─┬─ build ─┬─ code ────────────────┬───────────────┐
#           │         ├─ operator-packages ───┤               │
#           │         └─ replica-packages ────│─┐             │
#           ├─ java ──────────────────────────│─┤             │
#           └─ base ──────────────────────────┴─│─► operator  │
#                └──────────────────────────────┴─► spark ─┬──┴─► replica
#                                                          └─ class-data
#
# What changes often comes last, so that a new version of our code is one small layer.
#
# Everything is of one version, whenever it is built: the base by its tag (a registry may change what a tag names: to be
# sure, name a digest, PYTHON=python@sha256:...), Debian's packages by a moment, Python's by constraints.txt.

ARG PYTHON=python:3.11.15-slim-bookworm
# Debian as it was then; `now`: as the sources of the base have it
ARG SNAPSHOT=20261115T000000Z

FROM ${PYTHON} AS python
ARG SNAPSHOT
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# what Debian signed then is valid no longer than a week: that it is signed is still asked for
RUN if [ "$SNAPSHOT" != now ]; then \
      rm -f /etc/apt/sources.list.d/* \
   && for suite in "debian/$SNAPSHOT bookworm" "debian/$SNAPSHOT bookworm-updates" \
                   "debian-security/$SNAPSHOT bookworm-security"; do \
        echo "deb [check-valid-until=no] http://snapshot.debian.org/archive/$suite main"; \
      done >/etc/apt/sources.list; \
    fi

# --- what builds, and reaches no image ---
FROM python AS build
WORKDIR /src
RUN python -m venv /build
# no more than says what to install: whatever else changes, that need not be done again
COPY pyproject.toml constraints.txt ./
COPY replica_image/image/requirements.py replica_image/image/requirements.py

# --- a Java runtime with the modules that Spark uses ---
FROM python AS java
RUN apt-get update \
 && mkdir -p /usr/share/man/man1 \
 && apt-get install --yes --no-install-recommends openjdk-17-jdk-headless \
 && rm -rf /var/lib/apt/lists/*
RUN jlink --output /opt/java --strip-java-debug-attributes --no-man-pages --no-header-files --add-modules \
java.base,java.compiler,java.desktop,java.instrument,java.logging,java.management,java.naming,java.net.http,\
java.prefs,java.rmi,java.scripting,java.security.jgss,java.security.sasl,java.sql,java.xml,java.xml.crypto,\
jdk.crypto.ec,jdk.incubator.vector,jdk.jcmd,jdk.management,jdk.management.agent,jdk.naming.dns,jdk.net,jdk.nio.mapmode,\
jdk.security.auth,jdk.security.jgss,jdk.unsupported,jdk.zipfs \
 && /opt/java/bin/java -Xshare:dump

# --- what each needs of others, at the versions of constraints.txt ---
FROM build AS operator-packages
COPY replica_image/image/prepare.py replica_image/image/left-out-of-both.txt replica_image/image/
RUN python -m venv --without-pip /opt/tidemark \
 && python replica_image/image/requirements.py operator pgwire >/requirements.txt \
 && /build/bin/pip --python /opt/tidemark/bin/python install --constraint constraints.txt --requirement /requirements.txt \
 && packages=$(/opt/tidemark/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
 && echo /opt/code >"$packages/tidemark.pth" \
 && python replica_image/image/prepare.py "$packages"

FROM build AS replica-packages
RUN python -m venv --without-pip /opt/tidemark \
 && python replica_image/image/requirements.py planner replica >/requirements.txt \
 && /build/bin/pip --python /opt/tidemark/bin/python install --constraint constraints.txt --requirement /requirements.txt \
 && echo /opt/code >"$(/opt/tidemark/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tidemark.pth"
COPY --from=java /opt/java /opt/java
COPY replica_image/image replica_image/image
RUN cp -r replica_image/image /opt/tidemark/image \
 && python /opt/tidemark/image/prepare.py \
    "$(/opt/tidemark/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" /opt/tidemark/spark

# --- our own code, once for both; what makes a wheel of it is of constraints.txt, too ---
FROM build AS code
RUN /build/bin/pip install --constraint constraints.txt hatchling
COPY README.md LICENSE ./
COPY protocol protocol
COPY persist persist
COPY planner planner
COPY operator operator
COPY replica_image replica_image
COPY client client
COPY cli cli
COPY pgwire pgwire
COPY devcluster/tidemark_devcluster devcluster/tidemark_devcluster
RUN /build/bin/pip install --no-deps --no-build-isolation --target /opt/code .

# --- what runs: an unprivileged user, and an init that reaps and passes signals on ---
FROM python AS base
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libnss-wrapper tini \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* \
 && groupadd --gid 65532 tidemark \
 && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin tidemark
ENV PATH=/opt/tidemark/bin:$PATH HOME=/tmp

FROM base AS operator
COPY --from=operator-packages /opt/tidemark /opt/tidemark
COPY --from=code /opt/code /opt/code
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["tini", "--", "python", "-m", "tidemark_operator"]

FROM base AS spark
COPY --from=java /opt/java /opt/java
COPY --from=replica-packages /opt/tidemark /opt/tidemark
# Spark's workers must be this Python, whatever else PATH holds
ENV PYSPARK_PYTHON=/opt/tidemark/bin/python SPARK_HOME=/opt/tidemark/spark/home JAVA_HOME=/opt/java
USER 65532:65532
WORKDIR /tmp

# --- a run of Spark at build time leaves the classes that it loaded, ready to be mapped ---
FROM spark AS class-data
RUN python /opt/tidemark/image/warm.py /tmp/classes.jsa

FROM spark AS replica
COPY --from=class-data /tmp/classes.jsa /opt/tidemark/spark/classes.jsa
COPY --from=code /opt/code /opt/code
USER 65532:65532
WORKDIR /tmp
# the program is an argument: tidemark_replica for a replica, tidemark_planner for the planner, executor for Spark's own
ENTRYPOINT ["tini", "--", "/opt/tidemark/image/entrypoint"]
CMD ["tidemark_replica", "--help"]

# Two images from one checkout:
#
#   docker build --target operator -t tidemark/operator:0.1.0-dev .     Python alone: no JVM, no access to data
#   docker build --target replica  -t tidemark/replica:0.1.0-dev .      Spark and a Java 17 runtime; the planner too
#
#   python ── wheel ──┬── operator-packages ── operator
#                     └── replica-packages ─── replica

ARG PYTHON=python:3.11-slim-bookworm

FROM ${PYTHON} AS python
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# --- our own code, once for both ---
FROM python AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY protocol protocol
COPY persist persist
COPY planner planner
COPY operator operator
COPY replica_image replica_image
COPY cli cli
COPY devcluster/tidemark_devcluster devcluster/tidemark_devcluster
RUN pip wheel --no-deps --wheel-dir /wheel .

# --- what each needs of others, at the versions of constraints.txt ---
FROM wheel AS operator-packages
RUN python -m venv /opt/tidemark \
 && /opt/tidemark/bin/pip install --constraint constraints.txt "$(echo /wheel/*.whl)[operator]"

FROM wheel AS replica-packages
RUN python -m venv /opt/tidemark \
 && /opt/tidemark/bin/pip install --constraint constraints.txt "$(echo /wheel/*.whl)[planner,replica]"

# --- what runs: an unprivileged user, and an init that reaps and passes signals on ---
FROM python AS base
RUN apt-get update \
 && apt-get install --yes --no-install-recommends tini \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 65532 tidemark \
 && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin tidemark
ENV PATH=/opt/tidemark/bin:$PATH

FROM base AS operator
COPY --from=operator-packages /opt/tidemark /opt/tidemark
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["tini", "--", "python", "-m", "tidemark_operator"]

FROM base AS replica
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*
COPY --from=replica-packages /opt/tidemark /opt/tidemark
# Spark's workers must be this Python, whatever else PATH holds
ENV PYSPARK_PYTHON=/opt/tidemark/bin/python
USER 65532:65532
WORKDIR /tmp
# the program is an argument: tidemark_replica for a replica, tidemark_planner for the planner
ENTRYPOINT ["tini", "--", "python", "-m"]
CMD ["tidemark_replica", "--help"]

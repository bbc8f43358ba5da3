# What python:3.11-slim-bookworm has that the images of this project need.
ARG DEBIAN
FROM ${DEBIAN} AS python
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates python-is-python3 python3.11 python3.11-venv \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*

# The images. Build from the root of the repository, naming one:
#   docker build --target service -t fullrank .
#
#   service   the HTTP service; no training code
#   trainer   the commands that train; no web server
#   loop      `fullrank loop MODEL` every ten minutes, beside a service
#   fleet     every node of a fleet on Ray; STORES names the package of an object storage: --build-arg STORES=s3fs
#   demo      trains on the docstrings of numpy and scipy, then serves them
#
# Packages are pinned with hashes in requirements/. Pin the base likewise for a release:
#   --build-arg BASE=python:3.13-slim@sha256:…     (docker buildx imagetools inspect python:3.13-slim)
ARG BASE=python:3.13-slim

FROM ${BASE} AS base
RUN useradd --system --uid 10001 --user-group --home-dir /home/fullrank --create-home fullrank \
    && install --directory --owner=fullrank --group=fullrank /bundles /state /cache /var/cache/fullrank
# faiss-cpu includes OpenMP, so no image needs further packages of the system.
ENV PATH=/opt/fullrank/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    FULLRANK_BUNDLES=/bundles \
    NUMBA_CACHE_DIR=/var/cache/fullrank

FROM base AS build
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends binutils >/dev/null
WORKDIR /src
RUN python -m venv /opt/fullrank
COPY docker/slim.sh docker/
COPY requirements requirements
COPY pyproject.toml README.md LICENSE ./
COPY fullrank fullrank
# 0 means that pip does not compile: docker/slim.sh compiles what the image runs.
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COMPILE=0

FROM build AS build-service
RUN pip install --require-hashes -r requirements/service.txt -r requirements/build.txt
COPY service service
RUN pip install --no-deps --no-build-isolation . && docker/slim.sh fullrank_service.app

FROM build AS build-trainer
RUN pip install --require-hashes -r requirements/trainer.txt -r requirements/build.txt
COPY trainer trainer
RUN pip install --no-deps --no-build-isolation . && docker/slim.sh

FROM build AS build-loop
RUN pip install --require-hashes -r requirements/service.txt -r requirements/build.txt
COPY service service
COPY trainer trainer
RUN pip install --no-deps --no-build-isolation . && docker/slim.sh

FROM build AS build-fleet
ARG STORES=
RUN pip install --require-hashes -r requirements/fleet.txt -r requirements/build.txt
# Storage packages need the version of fsspec that is installed, so pip chooses theirs by it.
RUN if [ -n "$STORES" ]; then pip freeze --exclude-editable > /tmp/installed.txt \
        && pip install -c /tmp/installed.txt $STORES; fi
COPY service service
COPY trainer trainer
COPY fleet fleet
RUN pip install --no-deps --no-build-isolation . && docker/slim.sh

FROM base AS trainer
COPY --from=build-trainer /opt/fullrank /opt/fullrank
USER fullrank
# Mount a volume on /var/cache/fullrank to keep compiled kernels between runs.
VOLUME /bundles
ENTRYPOINT ["fullrank"]
CMD ["--help"]

FROM base AS loop
COPY --from=build-loop /opt/fullrank /opt/fullrank
USER fullrank
# Compile the kernels now. On another kind of processor they are compiled when they are first used.
RUN python -c "import fullrank.retrieval"
# The folder of bundles of the service: the log of events, what serves and the new versions are there.
VOLUME /bundles
CMD ["sh", "-c", "while :; do fullrank loop \"${MODEL:-mine}\"; sleep 600; done"]

FROM loop AS demo
ENV FULLRANK_HOST=0.0.0.0 \
    FULLRANK_ANONYMOUS=search,events \
    FULLRANK_DEFAULT_MODEL=demo
EXPOSE 8000
CMD ["sh", "-c", "fullrank demo --no-serve --out /bundles && exec fullrank serve --bundles /bundles/bundles"]

FROM base AS fleet
COPY --from=build-fleet /opt/fullrank /opt/fullrank
# Ray reports its use otherwise, counts mapped bundles as used memory, and ends nodes a minute after their head.
ENV OMP_NUM_THREADS=1 \
    OPENBLAS_NUM_THREADS=1 \
    MKL_NUM_THREADS=1 \
    NUMBA_NUM_THREADS=1 \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_memory_monitor_refresh_ms=0 \
    RAY_gcs_rpc_server_reconnect_timeout_s=600 \
    FULLRANK_HOST=0.0.0.0 \
    FULLRANK_PORT=8000
USER fullrank
RUN python -c "import fullrank.retrieval"
# What a router writes (rules, pages, events), and downloaded bundles.
VOLUME /state /cache
WORKDIR /state
EXPOSE 8000
CMD ["fullrank", "--help"]

# The last target is what a build without --target makes.
FROM base AS service
COPY --from=build-service /opt/fullrank /opt/fullrank
# With the kernels that docker/slim.sh has compiled. On another kind of processor the service compiles them when it starts.
COPY --from=build-service --chown=fullrank:fullrank /var/cache/fullrank /var/cache/fullrank
ENV OMP_NUM_THREADS=1 \
    OPENBLAS_NUM_THREADS=1 \
    MKL_NUM_THREADS=1 \
    NUMBA_NUM_THREADS=1 \
    FULLRANK_HOST=0.0.0.0 \
    FULLRANK_PORT=8000
USER fullrank
# The service listens on all addresses of the container, so it starts only with keys (`fullrank keys create`) or
# FULLRANK_ANONYMOUS. It writes the active version next to the bundles, so the volume must be writable.
VOLUME /bundles
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["python", "-c", \
    "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
CMD ["fullrank", "serve"]

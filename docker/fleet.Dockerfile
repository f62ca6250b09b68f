# The image of every node of a fleet: head, shards, routers, and the jobs that index and train. Build from the repository
# root; STORES names the package of an object storage:
#   docker build -f docker/fleet.Dockerfile --build-arg STORES=s3fs -t fullrank-fleet .
FROM python:3.13-slim AS build
ARG STORES=
WORKDIR /src
RUN python -m venv /opt/fullrank
COPY requirements/fleet.txt requirements/build.txt requirements/
RUN /opt/fullrank/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes \
        -r requirements/fleet.txt -r requirements/build.txt
# Storage packages need the version of fsspec that is installed, so pip chooses theirs by it.
RUN if [ -n "$STORES" ]; then /opt/fullrank/bin/pip freeze --exclude-editable > /tmp/installed.txt \
        && /opt/fullrank/bin/pip install --no-cache-dir --disable-pip-version-check -c /tmp/installed.txt $STORES; fi
COPY pyproject.toml README.md LICENSE ./
COPY fullrank fullrank
COPY service service
COPY trainer trainer
COPY fleet fleet
RUN /opt/fullrank/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/fullrank/bin/pip uninstall --yes --quiet setuptools pip

FROM python:3.13-slim
# Ray wants a name and a home for the user, for its folder of sessions and its token.
RUN useradd --system --uid 10001 --user-group --home-dir /home/fullrank --create-home fullrank \
    && install --directory --owner=fullrank --group=fullrank /state /cache /var/cache/fullrank
COPY --from=build /opt/fullrank /opt/fullrank
# Ray reports its use otherwise, counts mapped bundles as used memory, and ends nodes a minute after their head.
ENV PATH=/opt/fullrank/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OMP_NUM_THREADS=1 \
    OPENBLAS_NUM_THREADS=1 \
    MKL_NUM_THREADS=1 \
    NUMBA_NUM_THREADS=1 \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_memory_monitor_refresh_ms=0 \
    RAY_gcs_rpc_server_reconnect_timeout_s=600 \
    FULLRANK_HOST=0.0.0.0 \
    FULLRANK_PORT=8000 \
    NUMBA_CACHE_DIR=/var/cache/fullrank
USER fullrank
# Compile the kernels now. On another kind of processor a node compiles them when it first needs them.
RUN python -c "import fullrank.retrieval"
# What a router writes (rules, pages, events), and downloaded bundles.
VOLUME /state /cache
WORKDIR /state
EXPOSE 8000
CMD ["fullrank", "--help"]

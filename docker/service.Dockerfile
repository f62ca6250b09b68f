# The serving image: no training code. Build from the repository root:
#   docker build -f docker/service.Dockerfile -t fullrank-service .
FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /opt/fullrank
COPY requirements/service.txt requirements/build.txt requirements/
RUN /opt/fullrank/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes \
        -r requirements/service.txt -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY fullrank fullrank
COPY service service
RUN /opt/fullrank/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/fullrank/bin/pip uninstall --yes --quiet setuptools pip

FROM python:3.13-slim
# faiss-cpu includes OpenMP, so the image needs no system packages.
RUN useradd --system --uid 10001 --user-group --home-dir /nonexistent --no-create-home fullrank \
    && install --directory --owner=fullrank --group=fullrank /bundles /var/cache/fullrank
COPY --from=build /opt/fullrank /opt/fullrank
ENV PATH=/opt/fullrank/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OMP_NUM_THREADS=1 \
    OPENBLAS_NUM_THREADS=1 \
    MKL_NUM_THREADS=1 \
    NUMBA_NUM_THREADS=1 \
    FULLRANK_BUNDLES=/bundles \
    FULLRANK_HOST=0.0.0.0 \
    FULLRANK_PORT=8000 \
    NUMBA_CACHE_DIR=/var/cache/fullrank
USER fullrank
# Compile the kernels now. On another kind of processor the service compiles them when it starts.
RUN python -c "import fullrank.retrieval"
# The service listens on all addresses of the container, so it starts only with keys (`fullrank keys create`) or
# FULLRANK_ANONYMOUS. It writes the active version next to the bundles, so the volume must be writable.
VOLUME /bundles
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["python", "-c", \
    "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
CMD ["fullrank", "serve"]

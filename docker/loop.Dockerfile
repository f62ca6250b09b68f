# The image of `fullrank loop`: training, and the code that changes what serves. Build from the repository root:
#   docker build -f docker/loop.Dockerfile -t fullrank-loop .
FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /opt/fullrank
COPY requirements/service.txt requirements/build.txt requirements/
RUN /opt/fullrank/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes \
        -r requirements/service.txt -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY fullrank fullrank
COPY service service
COPY trainer trainer
RUN /opt/fullrank/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/fullrank/bin/pip uninstall --yes --quiet setuptools pip

FROM python:3.13-slim
# faiss-cpu includes OpenMP, so the image needs no system packages.
RUN useradd --system --uid 10001 --user-group --home-dir /nonexistent --no-create-home fullrank \
    && install --directory --owner=fullrank --group=fullrank /bundles /var/cache/fullrank
COPY --from=build /opt/fullrank /opt/fullrank
ENV PATH=/opt/fullrank/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    FULLRANK_BUNDLES=/bundles \
    NUMBA_CACHE_DIR=/var/cache/fullrank
USER fullrank
# Compile the kernels now. On another kind of processor they are compiled when the loop starts.
RUN python -c "import fullrank.retrieval"
# The folder of bundles of the service: the log of events, what serves and the new versions are there.
VOLUME /bundles
CMD ["sh", "-c", "while :; do fullrank loop \"${MODEL:-mine}\"; sleep 600; done"]

# The training image: no web server. Build from the repository root:
#   docker build -f docker/trainer.Dockerfile -t fullrank-trainer .
#   docker run --rm -v "$PWD/collection:/collection:ro" -v "$PWD/bundles:/bundles" \
#       fullrank-trainer train /collection --out /bundles --name mine
FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /opt/fullrank
COPY requirements/trainer.txt requirements/build.txt requirements/
RUN /opt/fullrank/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes \
        -r requirements/trainer.txt -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY fullrank fullrank
COPY trainer trainer
RUN /opt/fullrank/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/fullrank/bin/pip uninstall --yes --quiet setuptools pip

FROM python:3.13-slim
RUN useradd --system --uid 10001 --user-group --home-dir /nonexistent --no-create-home fullrank \
    && install --directory --owner=fullrank --group=fullrank /bundles /var/cache/fullrank
COPY --from=build /opt/fullrank /opt/fullrank
# Mount a volume on /var/cache/fullrank to keep compiled kernels between runs.
ENV PATH=/opt/fullrank/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/var/cache/fullrank
USER fullrank
VOLUME /bundles
ENTRYPOINT ["fullrank"]
CMD ["--help"]

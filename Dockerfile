# syntax=docker/dockerfile:1
# Two stages: the wheel is built with the pinned, hash-checked backend; the image holds only what runs.
# checkov:skip=CKV_DOCKER_7: the base image's tag stands in the argument below
ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /source
COPY requirements/ requirements/
# `traces` adds OpenTelemetry
ARG REQUIREMENTS=run
RUN python -m venv /build \
 && /build/bin/python -m pip install --require-hashes -r requirements/build.txt \
 && python -m venv --without-pip /app \
 && /build/bin/python -m pip --python /app/bin/python install --no-compile --require-hashes -r "requirements/${REQUIREMENTS}.txt"
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY deploy/sbom.py deploy/sbom.py
COPY service/ service/
# the same sources give the same bytes: the wheel by its time stamp, compiled files by hashes instead of times
ARG SOURCE_DATE_EPOCH=1735689600
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} PYTHONHASHSEED=0
RUN /build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheel . \
 && /build/bin/python -m pip --python /app/bin/python install --no-compile --no-deps /wheel/*.whl \
 && /app/bin/python deploy/sbom.py > /app/sbom.cdx.json \
 && /app/bin/python -m compileall -q --invalidation-mode unchecked-hash /app/lib

FROM ${PYTHON_IMAGE} AS run
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tonnage" \
      org.opencontainers.image.description="GPU memory sizing for LLM serving and fine-tuning" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ARG SOURCE_DATE_EPOCH=1735689600
# no package manager of Python in what runs; ids as in the chart's security context; the date of the password is the given one
RUN export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} \
 && rm -rf /usr/local/lib/python3*/site-packages/pip* /usr/local/lib/python3*/ensurepip /usr/local/bin/pip* \
 && groupadd --gid 10001 tonnage \
 && useradd --uid 10001 --gid 10001 --no-log-init --no-create-home --shell /usr/sbin/nologin tonnage
COPY --from=build /app /app
ENV PATH=/app/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    TONNAGE_HOST=0.0.0.0 TONNAGE_PORT=8000
USER 10001:10001
EXPOSE 8000
# open on all addresses only when said so: set TONNAGE_API_KEYS, TONNAGE_API_KEYS_FILE or TONNAGE_ALLOW_OPEN=true
HEALTHCHECK --interval=10s --timeout=2s --start-period=5s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['TONNAGE_PORT'] + '/healthz', timeout=1)"]
ENTRYPOINT ["tonnage"]
CMD ["serve"]

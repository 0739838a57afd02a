# KeyBlock as images: `cpu` and `gpu` serve, `ray` serves on Ray (docs/run/ray-and-kserve.md), `bulk` re-ranks lists (docs/models/bulk.md), `train` trains
# and exports (docs/run/deploy.md).
#
#   docker build --target cpu --tag keyblock:0.1.0-cpu .
#
# The base is pinned by the digest of its index of all platforms; PYTHON_IMAGE names another one. Packages are installed at the versions of
# requirements/constraints.txt, from wheels only, but for what `compiled` compiles. The build tools stay behind in the stages before.
ARG PYTHON_IMAGE=python:3.13.16-slim-trixie@sha256:bf44cdfcb76cd3b41e879bc058fc37ec5872002ccfde7fcb765e218cde0cd79c

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PIP_CONSTRAINT=/src/requirements/constraints.txt
WORKDIR /src
COPY requirements/constraints.txt requirements/
RUN python3 -m venv /build && /build/bin/pip install setuptools && python3 -m venv --without-pip /opt/keyblock
# What is installed depends on these alone, so that a change of the code downloads nothing.
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY keyblock/__init__.py keyblock/
RUN /build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /wheels .

# What reads documents without the interpreter's lock (docs/develop/native.md).
FROM build AS compiled
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/* && /build/bin/pip install nanobind
COPY native native
RUN /build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /compiled ./native

FROM build AS build-cpu
RUN /build/bin/pip --python /opt/keyblock/bin/python install --only-binary :all: "$(ls /wheels/*.whl)[cpu,otel,serve]"
COPY --from=compiled /compiled /compiled
COPY keyblock keyblock
COPY service service
RUN /build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /wheels . \
    && /build/bin/pip --python /opt/keyblock/bin/python install --no-deps --force-reinstall /wheels/*.whl /compiled/*.whl \
    && find /opt/keyblock/bin -name 'keyblock-*' ! -name keyblock-serve ! -name keyblock-key -delete

FROM build AS build-gpu
RUN /build/bin/pip --python /opt/keyblock/bin/python install --only-binary :all: "$(ls /wheels/*.whl)[gpu,otel,serve]"
COPY --from=compiled /compiled /compiled
COPY keyblock keyblock
COPY service service
RUN /build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /wheels . \
    && /build/bin/pip --python /opt/keyblock/bin/python install --no-deps --force-reinstall /wheels/*.whl /compiled/*.whl \
    && find /opt/keyblock/bin -name 'keyblock-*' ! -name keyblock-serve ! -name keyblock-key -delete

FROM build AS build-ray
RUN /build/bin/pip --python /opt/keyblock/bin/python install --only-binary :all: "$(ls /wheels/*.whl)[cpu,otel,ray-serve]"
COPY --from=compiled /compiled /compiled
COPY keyblock keyblock
COPY service service
RUN /build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /wheels . \
    && /build/bin/pip --python /opt/keyblock/bin/python install --no-deps --force-reinstall /wheels/*.whl /compiled/*.whl \
    && find /opt/keyblock/bin -name 'keyblock-*' ! -name keyblock-serve ! -name keyblock-key -delete

FROM build AS build-train
RUN /build/bin/pip --python /opt/keyblock/bin/python install --only-binary :all: "$(ls /wheels/*.whl)[cpu,train]"
COPY keyblock keyblock
COPY training training
COPY export export
RUN /build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /wheels . \
    && /build/bin/pip --python /opt/keyblock/bin/python install --no-deps --force-reinstall /wheels/*.whl \
    && rm /opt/keyblock/bin/keyblock-serve /opt/keyblock/bin/keyblock-key /opt/keyblock/bin/keyblock-bulk

FROM build AS build-bulk
RUN /build/bin/pip --python /opt/keyblock/bin/python install --only-binary :all: "$(ls /wheels/*.whl)[cpu,ray]"
COPY --from=compiled /compiled /compiled
COPY keyblock keyblock
COPY bulk bulk
RUN /build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /wheels . \
    && /build/bin/pip --python /opt/keyblock/bin/python install --no-deps --force-reinstall /wheels/*.whl /compiled/*.whl \
    && find /opt/keyblock/bin -name 'keyblock-*' ! -name keyblock-bulk -delete

FROM ${PYTHON_IMAGE} AS runtime
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="KeyBlock" \
      org.opencontainers.image.description="Reranks long documents by their key blocks" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY LICENSE NOTICE /usr/share/doc/keyblock/
COPY models/default /models/default
COPY models/keyb-bm25 /models/keyb-bm25
# HOME is the one place that libraries may write to; nothing has to be there, and everything else may be read-only.
ENV PATH=/opt/keyblock/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# A number, so that Kubernetes sees that it is not root.
USER 10001:10001
WORKDIR /tmp

FROM runtime AS serving
ENV KEYBLOCK_BUNDLE=/models/default KEYBLOCK_HOST=0.0.0.0 KEYBLOCK_PORT=8000
EXPOSE 8000
ENTRYPOINT ["keyblock-serve"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 CMD ["python3", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['KEYBLOCK_PORT']), timeout=4); c.request('GET', '/health/ready'); sys.exit(c.getresponse().status != 200)"]

FROM runtime AS train
COPY --from=build-train /opt/keyblock /opt/keyblock
COPY training/recipes /training/recipes
# A recipe's `init: models/default` is found from here.
WORKDIR /

# KubeRay starts Ray in it.
FROM runtime AS ray
ENV KEYBLOCK_BUNDLE=/models/default
COPY --from=build-ray /opt/keyblock /opt/keyblock

FROM runtime AS bulk
COPY --from=build-bulk /opt/keyblock /opt/keyblock
ENTRYPOINT ["keyblock-bulk"]

FROM serving AS gpu
ENV KEYBLOCK_PROVIDER=cuda NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-gpu /opt/keyblock /opt/keyblock

FROM serving AS cpu
COPY --from=build-cpu /opt/keyblock /opt/keyblock

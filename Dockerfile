# syntax=docker/dockerfile:1
#
# Image of a node. Build it with `docker build -t taskraft:dev .`; k8s/ runs it.
#
# The base image has no digest here, because the digest would become outdated unnoticed, and the name must work with
# any mirror. Pin the digest when you publish an image (`--build-arg PYTHON_IMAGE=name@sha256:...`).
ARG PYTHON_IMAGE=python:3.13-slim
ARG RUST_IMAGE=rust:1-slim
# `native`: the image has the native edge. `none`: nodes serve clients with grpc.aio, and the build needs no Rust image.
ARG EDGE=native

# Build the native edge, the server of the client port. Its wheel works with every Python from 3.11 on.
FROM ${RUST_IMAGE} AS edge-native
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv
WORKDIR /src
COPY constraints/native.txt constraints/
RUN python3 -m venv /opt/maturin \
 && /opt/maturin/bin/pip install --only-binary :all: --require-hashes -r constraints/native.txt
COPY edge edge
RUN /opt/maturin/bin/maturin build --release --manifest-path edge/Cargo.toml --out /wheels

FROM ${PYTHON_IMAGE} AS edge-none
RUN mkdir /wheels

# Old versions of buildah find the stage only with a default at this place.
FROM edge-${EDGE:-native} AS edge

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src

# Install the locked dependencies first, because this layer changes rarely. Use wheels only, so that no build
# script runs.
COPY constraints/service.txt constraints/build.txt constraints/
RUN python -m venv /opt/taskraft \
 && /opt/taskraft/bin/pip install --only-binary :all: --require-hashes -r constraints/service.txt \
 && pip install --only-binary :all: --require-hashes -r constraints/build.txt

# Build and install the two distributions with the locked build back end.
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY service service
COPY replication replication
COPY clients/python clients/python
COPY --from=edge /wheels /wheels
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . ./clients/python \
 && /opt/taskraft/bin/pip install --no-deps --no-index /wheels/*.whl \
 && /opt/taskraft/bin/pip check \
 && /opt/taskraft/bin/pip uninstall --yes setuptools pip

FROM ${PYTHON_IMAGE}
# A numeric user, as Pod Security "restricted" requires. The data directory is a volume with this group.
RUN groupadd --gid 10001 taskraft \
 && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin taskraft \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/taskraft
COPY --from=build /opt/taskraft /opt/taskraft
# The root file system is read-only at run time, so Python must not write byte code (pip compiled the sources at
# installation). Output is unbuffered, so that log lines appear at once.
ENV PATH=/opt/taskraft/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    TASKRAFT_DATA_DIR=/var/lib/taskraft \
    TASKRAFT_LISTEN=0.0.0.0:7401 TASKRAFT_PEER_LISTEN=0.0.0.0:7402 TASKRAFT_HTTP_LISTEN=0.0.0.0:7480
USER 10001:10001
EXPOSE 7401 7402 7480
STOPSIGNAL SIGTERM
# No shell in between, so that the node receives the signals.
ENTRYPOINT ["taskraft"]
CMD ["serve"]

# syntax=docker/dockerfile:1
#
# The image of a node. Built with `docker build -t taskraft:dev .`; k8s/ says how it is run.
#
# The base is named without a digest: a digest written here would age unseen, and the name must work with
# any mirror. Whoever publishes the image pins it (`--build-arg PYTHON_IMAGE=name@sha256:...`).
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src

# The locked dependencies first: this layer changes seldom. Only wheels, so nothing is compiled or run.
COPY constraints/service.txt constraints/build.txt constraints/
RUN python -m venv /opt/taskraft \
 && /opt/taskraft/bin/pip install --only-binary :all: --require-hashes -r constraints/service.txt \
 && pip install --only-binary :all: --require-hashes -r constraints/build.txt

# Then our own two distributions, as wheels, by the locked build back end.
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY service service
COPY replication replication
COPY clients/python clients/python
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . ./clients/python \
 && /opt/taskraft/bin/pip install --no-deps --no-index /wheels/*.whl \
 && /opt/taskraft/bin/pip check \
 && /opt/taskraft/bin/pip uninstall --yes pip

FROM ${PYTHON_IMAGE}
# A number of its own, as Pod Security "restricted" wants it; the data directory is a volume of that group.
RUN groupadd --gid 10001 taskraft \
 && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin taskraft \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/taskraft
COPY --from=build /opt/taskraft /opt/taskraft
# The root is read-only when it runs, so Python may not try to write byte code beside the sources (pip
# compiled them at install), and everything goes to the log at once.
ENV PATH=/opt/taskraft/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    TASKRAFT_DATA_DIR=/var/lib/taskraft \
    TASKRAFT_LISTEN=0.0.0.0:7401 TASKRAFT_PEER_LISTEN=0.0.0.0:7402 TASKRAFT_HTTP_LISTEN=0.0.0.0:7480
USER 10001:10001
EXPOSE 7401 7402 7480
STOPSIGNAL SIGTERM
# No shell in between: the node itself gets the signal.
ENTRYPOINT ["taskraft"]
CMD ["serve"]

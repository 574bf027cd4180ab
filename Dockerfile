# Two stages: a wheel is built where the compiler is, and installed where it is not.
#
#   docker build --tag tane .
#   docker run --rm --read-only --tmpfs /tmp --publish 127.0.0.1:8000:8000 \
#       --volume "$PWD/keys.txt:/run/secrets/keys:ro" --env TANE_KEYS_FILE=/run/secrets/keys tane
#   docker run --rm --read-only --tmpfs /tmp tane generate "The capital of France is"
#
# It listens on every address inside, so it serves no one without a file of keys, or TANE_INSECURE=1 where anyone may call.
#
# PULL=0 leaves the model out: mount one into /models and name it in TANE_MODEL, or mount a folder for the default one.
# TORCH=1 adds torch, which only --engine torch, compression and its studies use; PIP_EXTRA_INDEX_URL may name an
# index that offers it for CPUs alone, which is far smaller.

FROM python:3.11-bookworm AS build
ARG PIP_EXTRA_INDEX_URL
ARG TORCH=0
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
WORKDIR /src
COPY pyproject.toml ./
RUN python -m venv /opt/tane \
    && python -c "import sys, tomllib; torch = {'0': False, '1': True}[sys.argv[1]]; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; needed = project['dependencies'] + project['optional-dependencies']['tracing']; print(*(each for each in needed if torch or not each.startswith('torch>')), sep='\n')" "$TORCH" > /requirements.txt \
    && /opt/tane/bin/pip install --requirement /requirements.txt
COPY CMakeLists.txt README.md LICENSE ./
COPY model model
COPY service service
RUN pip wheel --no-deps --wheel-dir /wheels . \
    && /opt/tane/bin/pip install --no-deps /wheels/*.whl

FROM python:3.11-slim-bookworm
ARG PULL=1
LABEL org.opencontainers.image.title="Tane" \
    org.opencontainers.image.description="A text-generation server: the same seed gives the same bits." \
    org.opencontainers.image.licenses="Apache-2.0"
# Nothing is compiled while it runs: the official image comes without the bytecode of the standard library.
RUN useradd --uid 10001 --no-create-home --home-dir /models --shell /usr/sbin/nologin tane \
    && install --directory --owner=10001 --group=10001 /models \
    && python -m compileall -q -x '/(test|tests|idle_test|lib2to3|site-packages|dist-packages)/' "$(python -c 'import os; print(os.path.dirname(os.__file__))')"
COPY --from=build /opt/tane /opt/tane
ENV PATH="/opt/tane/bin:$PATH" \
    HOME=/tmp \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TANE_CACHE_FOLDER=/models \
    TANE_HOST=0.0.0.0 \
    TANE_PORT=8000
USER 10001:10001
WORKDIR /models
RUN case "$PULL" in 0) ;; 1) tane pull ;; *) echo "PULL must be 0 or 1" >&2; exit 1 ;; esac
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['TANE_PORT']), timeout=3); c.request('GET', '/readyz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["tane"]
CMD ["serve"]

# Two stages: a wheel is built where the compiler is, and installed where it is not.
#
#   docker build --tag tane .
#   docker run --rm --publish 8000:8000 tane
#   docker run --rm tane generate "The capital of France is"
#
# PIP_EXTRA_INDEX_URL may name an index that offers torch for CPUs alone, whose image is far smaller.

FROM python:3.11-bookworm AS build
ARG PIP_EXTRA_INDEX_URL
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
WORKDIR /src
COPY pyproject.toml CMakeLists.txt README.md LICENSE ./
COPY model model
COPY service service
RUN pip wheel --no-deps --wheel-dir /wheels . \
    && python -m venv /opt/tane \
    && /opt/tane/bin/pip install /wheels/*.whl

FROM python:3.11-slim-bookworm
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin tane
COPY --from=build /opt/tane /opt/tane
ENV PATH="/opt/tane/bin:$PATH" \
    HOME=/home/tane \
    PYTHONUNBUFFERED=1 \
    TANE_HOST=0.0.0.0 \
    TANE_PORT=8000
USER 10001:10001
WORKDIR /home/tane
RUN PIP_NO_CACHE_DIR=1 tane pull
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['TANE_PORT']), timeout=3); c.request('GET', '/readyz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["tane"]
CMD ["serve"]

# The HTTP server: docker build -t quintain . (CPU), docker build --build-arg TORCH=cu130 -t quintain:cuda . (NVIDIA GPUs)
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
# The index of torch's wheels: cpu, or one of CUDA such as cu130. CUDA's libraries come with the wheels.
ARG TORCH=cpu
ARG EXTRAS=data,postgres,s3
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --extra-index-url "https://download.pytorch.org/whl/${TORCH}" \
    -c constraints.txt ".[${EXTRAS}]" \
 && /venv/bin/python -m compileall -q /venv/lib

FROM python:${PYTHON}-slim
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends bubblewrap tini \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --create-home quintain \
 && install --directory --owner=quintain --group=quintain --mode=700 /data
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    QUINTAIN_HOME=/data \
    HF_HOME=/data/cache/huggingface
USER 10001:10001
VOLUME /data
EXPOSE 8765
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/healthz', timeout=4)"]
# tini is the first process: it passes signals on and collects the processes of jobs that outlive their shim.
ENTRYPOINT ["tini", "--", "quintain"]
CMD ["serve", "--transport", "http", "--host", "0.0.0.0", "--port", "8765"]

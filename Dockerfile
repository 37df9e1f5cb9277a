# The study in a container; book/gpu_server.md says how to use it.
FROM python:3.11-slim-bookworm

# Set it to the address of the torch builds for your CUDA version; without it, pip takes torch from its usual index.
ARG TORCH_INDEX_URL=""

# git: results record the commit. A compiler: torch.compile and Triton. Chromium: the browser tests.
# Debian keeps only the newest version of a package, so none is pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends chromium g++ git \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /project
COPY . .
RUN bash scripts/setup.sh

CMD ["bash", "scripts/study.sh"]

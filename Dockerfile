# The core of art-e, without benchmarks and training; nothing in it runs as root.
#   docker build -t art-e .
#   docker run --rm -it -v art-e:/data -v ~/Maildir:/mail:ro art-e ingest /mail
#   docker run --rm -it -v art-e:/data art-e ask "When does the lease end?"
FROM python:3.11-slim
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements/core.txt \
    && pip install --no-cache-dir --no-deps --no-build-isolation . \
    && useradd --create-home reader && install --directory --owner=reader /data
USER reader
ENV ART_E_HOME=/data
VOLUME /data
WORKDIR /data
ENTRYPOINT ["art-e"]

# docker build -t sluice .
# docker run -p 8080:8080 -v ./sluice.yaml:/etc/sluice/sluice.yaml:ro sluice
# It has a C compiler, with which the hot modules are compiled; the image itself has none.
FROM python:3.13 AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements/ requirements/
RUN python -m venv /build \
 && /build/bin/pip install --require-hashes -r requirements/compile.txt \
 && python -m venv --without-pip /opt/sluice \
 && /build/bin/pip --python /opt/sluice/bin/python install \
    --require-hashes --only-binary :all: -r requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY scripts/ scripts/
COPY gateway/ gateway/
RUN /build/bin/pip wheel --no-deps --no-build-isolation -w /dist . \
 && /build/bin/pip --python /opt/sluice/bin/python install --no-deps /dist/*.whl


FROM python:3.13-slim

RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin sluice
COPY --from=build /opt/sluice /opt/sluice
ENV PATH=/opt/sluice/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
EXPOSE 8080
# The process ends its work in flight on SIGTERM, which is what Docker sends.
STOPSIGNAL SIGTERM
# Asks the admin listener on its usual address, loopback of the container.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["sluice", "healthcheck"]
ENTRYPOINT ["sluice"]
CMD ["run", "-c", "/etc/sluice/sluice.yaml"]

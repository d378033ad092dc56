# The console and the other commands of Verax on a book in PostgreSQL; see docs/how-to/container.md.
FROM python:3.11-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
# An auditor's image has flower, which spot checks need: --build-arg EXTRAS=flower
ARG EXTRAS=console,ledger,postgres
RUN python -m venv /opt/verax \
    && /opt/verax/bin/pip install --no-cache-dir --constraint constraints.txt ".[${EXTRAS}]"

FROM python:3.11-slim-bookworm
# A volume that is mounted on /state gets the owner of this folder.
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin verax \
    && install --directory --owner verax --group verax --mode 700 /state
COPY --from=build /opt/verax /opt/verax
ENV PATH=/opt/verax/bin:$PATH \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /state
EXPOSE 8765
ENTRYPOINT ["verax"]
CMD ["--help"]

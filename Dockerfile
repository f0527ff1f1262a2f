# Two images: "dev" (the default target) to work in, "mlflow" for the tracking server of docker-compose.yml.

FROM ghcr.io/mlflow/mlflow:v3.17.2 AS mlflow
RUN pip install --no-cache-dir psycopg2-binary==2.9.12

FROM python:3.11-slim AS dev
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make git \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /workspace
COPY requirements-dev.lock .
RUN pip install --no-cache-dir -r requirements-dev.lock
COPY . .
RUN pip install --no-cache-dir --no-deps --editable . \
    && mkdir -p /data /models /outputs
CMD ["sleep", "infinity"]

"""The compose file holds what the tracking server needs to be reached and to start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


def test_the_development_container_comes_alone_and_with_its_three_folders() -> None:
    assert [name for name, service in SERVICES.items() if "profiles" not in service] == ["neuraldbg-dev"]
    inside = {volume.split(":")[1] for volume in SERVICES["neuraldbg-dev"]["volumes"]}
    assert {"/data", "/models", "/outputs"} <= inside


def test_the_server_names_its_driver() -> None:
    """A bare postgresql:// means psycopg 3 since SQLAlchemy 2.1, which the image does not have."""
    assert "postgresql+psycopg2://" in SERVICES["mlflow"]["command"]
    assert "psycopg2-binary==" in (ROOT / "Dockerfile").read_text()


def test_the_server_answers_to_the_name_that_clients_call() -> None:
    """A Host header that is not listed gets 403 while /health stays green."""
    allowed = SERVICES["mlflow"]["environment"]["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
    assert {"mlflow:*", "localhost:*", "127.0.0.1:*"} <= set(allowed)


def test_no_port_is_open_beyond_this_machine() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_no_image_floats() -> None:
    """An image without a version, or with `latest`, is another one next month."""
    froms = [line.split()[1] for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("FROM ")]
    pulled = froms + [service["image"] for service in SERVICES.values() if "build" not in service]
    assert len(pulled) == 3
    assert [image for image in pulled if ":" not in image or image.endswith(":latest")] == []


def test_the_server_waits_for_its_database() -> None:
    assert SERVICES["mlflow"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert "pg_isready" in " ".join(SERVICES["postgres"]["healthcheck"]["test"])

"""A tracking server as docker-compose.yml runs it, on a PostgreSQL of Debian's: both on this machine alone.

The settings of the server are read from the compose file, so that what is tested is what it starts.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
SECONDS = 120  # for a server to answer: its first start makes fifty tables
BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Postgres:
    """A database of its own in a folder. PostgreSQL refuses to run as root, who lends it to the account `postgres`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.data = folder / "data"
        if os.getuid() == 0:
            shutil.chown(folder, "postgres")
        self._run("initdb", "-D", str(self.data), "-A", "trust", "-U", "mlflow", "--no-sync")
        options = f"-p {self.port} -h 127.0.0.1 -k {folder} -c fsync=off"
        self._run("pg_ctl", "-D", str(self.data), "-o", options, "-l", str(folder / "log"), "-w", "start")
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "mlflow", "mlflow")

    def _run(self, program: str, *arguments: str) -> None:
        as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        command = [*as_user, str(BINARIES[-1] / program), *arguments]
        done = subprocess.run(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0, done.stderr

    @property
    def version(self) -> str:
        return (self.data / "PG_VERSION").read_text().strip()

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.data), "-m", "immediate", "stop")


class Server:
    """`mlflow server` with the compose file's settings, on other ports and paths."""

    def __init__(self, folder: Path, postgres: Postgres) -> None:
        service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["mlflow"]
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = re.sub(r"\$\{POSTGRES_PASSWORD:-(\w+)\}", r"\1", service["command"])
        command = command.replace("@postgres:5432", f"@127.0.0.1:{postgres.port}").replace("0.0.0.0", "127.0.0.1")
        command = command.replace("--port 5000", f"--port {self.port}").replace("/mlartifacts", str(folder / "files"))
        self.command = [sys.executable, "-m", *command.split()]
        self.environment = {**os.environ, **service["environment"]}
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with (self.folder / "server.log").open("ab") as out:
            self.process = subprocess.Popen(
                self.command, cwd=self.folder, env=self.environment, stdout=out, stderr=out, start_new_session=True
            )
        end = time.monotonic() + SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except OSError:
                assert time.monotonic() < end, (self.folder / "server.log").read_text()[-3000:]
                assert self.process.poll() is None, (self.folder / "server.log").read_text()[-3000:]
                time.sleep(0.2)

    def stop(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, 15)
        self.process.wait(30)

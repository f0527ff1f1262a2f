"""A W&B server on loopback, in memory: what wandb's client asks of it for runs, files, artifacts, sweeps and views.

An operation that it does not know is kept in `unknown`, and the test that met it fails. `fault` makes the server
misbehave from then on: drop the connection, answer with an error status, or answer late.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "0123456789abcdef0123456789abcdef01234567"  # any 40 characters
_OPERATION = re.compile(r"\b(query|mutation)\s+(\w+)")
_VIEWER = re.compile(r"\s*query\s*\{\s*viewer\b")  # 0.28 asks without a name whether the key is right
_STREAM = re.compile(r".*/files/([^/]+)/([^/]+)/([^/]+)/file_stream")


@dataclass
class Fault:
    drop: bool = False
    status: int = 0
    delay: float = 0.0


@dataclass
class Run:
    """A run as the server has it."""

    upserts: dict[str, Any] = field(default_factory=dict)
    lines: dict[int, dict[str, Any]] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    exit_code: int | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [self.lines[at] for at in sorted(self.lines)]

    @property
    def config(self) -> dict[str, Any]:
        told = json.loads(self.upserts.get("config") or "{}")
        return {key: entry["value"] for key, entry in told.items() if key != "_wandb"}

    @property
    def tags(self) -> list[str]:
        return list(self.upserts.get("tags") or [])


@dataclass
class Artifact:
    name: str
    kind: str
    aliases: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    committed: bool = False


class Server:
    """runs, artifacts, alerts, views: what arrived. `url` is the base URL to give to wandb."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.runs: dict[str, Run] = {}
        self.artifacts: dict[str, Artifact] = {}
        self.alerts: list[dict[str, Any]] = []
        self.views: list[dict[str, Any]] = []
        self.unknown: list[str] = []
        self.jobs: list[dict[str, Any]] = []  # parameters that a sweep's agent gets, one run each
        self.fault = Fault()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": self}))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def run(self, name: str) -> Run:
        with self.lock:
            return self.runs.setdefault(name, Run())

    # -- what the client may ask: one method an operation, its variables in, its data out --

    def ask(self, operation: str, variables: dict[str, Any]) -> dict[str, Any] | None:
        answer = getattr(self, f"_{operation}", None)
        if answer is None:
            self.unknown.append(operation)
            return None
        with self.lock:
            data: dict[str, Any] = answer(variables)
        return data

    def _Viewer(self, _: Any) -> Any:
        person = {"id": "VXNlcjox", "entity": "local", "username": "local", "name": "local", "email": "a@example.org"}
        return {"viewer": {**person, "admin": False, "flags": "{}", "teams": {"edges": []}}}

    _GetViewer = _Viewer
    _GetDefaultEntity = _Viewer

    def _ServerFeaturesQuery(self, _: Any) -> Any:
        return {"serverInfo": {"features": []}}

    def _ServerInfo(self, _: Any) -> Any:
        return {"serverInfo": {"cliVersionInfo": {}, "latestLocalVersionInfo": None}}

    def _RunResumeStatus(self, variables: Any) -> Any:
        """A run that is resumed goes on behind its last row; what it says of itself comes back with it."""
        run = self.runs.get(variables["name"])
        if run is None:
            return {"model": None}
        last = json.dumps([json.dumps(row) for row in run.rows[-1:]])
        bucket = {
            "id": "QnVja2V0OjE=",
            "name": variables["name"],
            "displayName": variables["name"],
            "summaryMetrics": json.dumps(run.summary),
            "config": run.upserts.get("config") or "{}",
            "tags": run.tags,
            "notes": run.upserts.get("notes"),
            "historyLineCount": len(run.lines),
            "historyTail": last,
            "logLineCount": 0,
            "eventsLineCount": 0,
            "eventsTail": "[]",
            "wandbConfig": json.dumps({"t": 1}),
        }
        return {"model": {"id": "p", "name": "p", "entity": {"id": "e", "name": "local"}, "bucket": bucket}}

    def _OrgFeatureFlags(self, _: Any) -> Any:
        return {"organization": None}

    def _RunStoppedStatus(self, _: Any) -> Any:
        return {"project": {"run": {"stopped": False}}}

    def _UpsertBucket(self, variables: Any) -> Any:
        name = variables["name"]
        self.run(name).upserts.update({k: v for k, v in variables.items() if v is not None})
        project = {
            "id": "p",
            "name": variables.get("project") or "uncategorized",
            "entity": {"id": "e", "name": "local"},
        }
        bucket = {
            "id": "QnVja2V0OjE=",
            "name": name,
            "displayName": variables.get("displayName") or name,
            "description": None,
            "config": "{}",
            "sweepName": variables.get("sweep"),
            "historyLineCount": 0,
            "project": project,
        }
        return {"upsertBucket": {"bucket": bucket, "inserted": True}}

    def _NotifyScriptableRunAlert(self, variables: Any) -> Any:
        self.alerts.append(variables)
        return {"notifyScriptableRunAlert": {"success": True}}

    def _CreateRunFiles(self, variables: Any) -> Any:
        run = variables["run"]
        files = [{"name": f, "uploadUrl": f"{self.url}/put/run/{run}/{f}"} for f in variables["files"]]
        return {"createRunFiles": {"runID": "QnVja2V0OjE=", "uploadHeaders": [], "files": files}}

    def _ArtifactType(self, _: Any) -> Any:
        return {"project": None}

    def _CreateArtifact(self, variables: Any) -> Any:
        told, key = variables.get("input") or variables, f"QXJ0-{uuid.uuid4().hex[:8]}"  # 0.28's sync: no "input"
        aliases = [alias["alias"] for alias in told.get("aliases") or []]
        name = told.get("artifactCollectionName") or told["artifactCollectionNames"][0]
        self.artifacts[key] = Artifact(name, told["artifactTypeName"], aliases)
        sequence = {"latestArtifact": None}
        return {"createArtifact": {"artifact": {"id": key, "state": "PENDING", "artifactSequence": sequence}}}

    def _ArtifactByID(self, variables: Any) -> Any:
        """0.28 and 0.29 fill in the artifact that `log_artifact` gave back; nothing of ours reads it."""
        found = self.artifacts[variables["id"]]
        project = {"id": "p", "internalId": "1", "name": "p", "entity": {"name": "local"}}
        moment = "2026-01-01T00:00:00Z"
        artifact = {
            "__typename": "Artifact",
            "id": variables["id"],
            "artifactSequence": {"__typename": "ArtifactSequence", "name": found.name, "project": project},
            "versionIndex": 0,
            "artifactType": {"name": found.kind},
            "state": "COMMITTED" if found.committed else "PENDING",
            "ttlDurationSeconds": -2,
            "ttlIsInherited": True,
            "tags": [],
            "size": 0,
            "digest": "",
            "fileCount": len(found.files),
            "createdAt": moment,
            "updatedAt": moment,
            "aliases": [],
            **dict.fromkeys(("description", "metadata", "historyStep", "commitHash")),
            "digestAlgorithm": "MANIFEST_MD5",
        }
        return {"artifact": artifact}

    def _FetchArtifactManifest(self, variables: Any) -> Any:
        url = f"{self.url}/get/artifact/{variables['id']}/manifest"
        return {"artifact": {"currentManifest": {"file": {"directUrl": url}}}}

    def _CreateArtifactManifest(self, variables: Any) -> Any:
        key = variables["artifactID"]
        url = f"{self.url}/put/artifact/{key}/manifest" if variables.get("includeUpload") else None
        manifest = {"id": f"M-{key}", "file": {"id": "F1", "uploadUrl": url, "uploadHeaders": []}}
        return {"createArtifactManifest": {"artifactManifest": manifest}}

    def _CreateArtifactFiles(self, variables: Any) -> Any:
        edges = []
        for file in variables.get("artifactFiles") or variables["input"]["artifactFiles"]:
            url = f"{self.url}/put/artifact/{file['artifactID']}/{file['name']}"
            place = {"storagePath": f"wandb_artifacts/{file['name']}", "uploadUrl": url, "uploadHeaders": []}
            names = {"name": file["name"], "displayName": file["name"]}  # by which 0.28's sync tells them apart
            node = {**place, **names, "uploadMultipartUrls": None, "artifact": {"id": file["artifactID"]}}
            edges.append({"node": node})
        return {"createArtifactFiles": {"files": {"edges": edges}}}

    def _CommitArtifact(self, variables: Any) -> Any:
        key = variables["artifactID"]
        self.artifacts[key].committed = True
        return {"commitArtifact": {"artifact": {"id": key, "digest": ""}}}

    def _UpsertSweep(self, variables: Any) -> Any:
        sweep = {"name": "sweep7", "id": "U3dlZXA=", "project": {"name": "p", "entity": {"name": "local"}}}
        return {"upsertSweep": {"sweep": sweep, "configValidationWarnings": []}}

    def _CreateAgent(self, _: Any) -> Any:
        return {"createAgent": {"agent": {"id": "QWdlbnQ="}}}

    def _Heartbeat(self, _: Any) -> Any:
        """One command a beat: the next run, and to stop once all have ended, for it would stop the last one too."""
        over = not self.jobs and all(run.exit_code is not None for run in self.runs.values())
        commands: list[dict[str, Any]] = [{"type": "exit"}] if over else []
        if self.jobs:
            args = {name: {"value": value} for name, value in self.jobs.pop(0).items()}
            commands = [{"type": "run", "run_id": f"sweeprun{uuid.uuid4().hex[:4]}", "program": None, "args": args}]
        return {"agentHeartbeat": {"agent": {"id": "QWdlbnQ="}, "commands": json.dumps(commands)}}

    def _UpsertView2(self, variables: Any) -> Any:
        self.views.append(variables)
        return {"upsertView": {"view": {"id": "Vmlldzox", "name": variables.get("name")}, "inserted": True}}

    def _Runs(self, variables: Any) -> Any:
        """Two runs a page, so that a reader that stops after the first page is found out."""
        if variables["project"] != "p":
            return {"project": None}
        names, start = list(self.runs), int(variables.get("cursor") or 0)
        edges = [{"node": self._node(name), "cursor": str(n)} for n, name in enumerate(names, 1)][start : start + 2]
        more = {"endCursor": str(start + 2), "hasNextPage": start + 2 < len(names)}
        found = {"edges": edges, "pageInfo": more}
        return {"project": {"internalId": "1", "runCount": len(names), "readOnly": False, "runs": found}}

    def _node(self, name: str) -> dict[str, Any]:
        run = self.runs[name]
        told = {"id": name, "name": name, "displayName": name, "tags": run.tags, "state": "finished", "projectId": "1"}
        empty = dict.fromkeys(("sweepName", "group", "jobType", "commit", "description", "notes"))
        moment = "2026-01-01T00:00:00Z"
        return {
            **told,
            **empty,
            "config": run.upserts.get("config") or "{}",
            "summaryMetrics": json.dumps(run.summary),
            "systemMetrics": "{}",
            "historyKeys": None,
            "historyLineCount": len(run.lines),
            "readOnly": False,
            "createdAt": moment,
            "heartbeatAt": moment,
            "user": {"name": "local", "username": "local"},
        }

    # -- the two other ways in: the file stream, and uploads --

    def stream(self, name: str, told: dict[str, Any]) -> None:
        run = self.run(name)
        with self.lock:
            for file, part in (told.get("files") or {}).items():
                if file == "wandb-history.jsonl":
                    run.lines.update({part["offset"] + i: json.loads(line) for i, line in enumerate(part["content"])})
                elif file == "wandb-summary.json":
                    run.summary = json.loads(part["content"][-1])
            if told.get("complete"):
                run.exit_code = told.get("exitcode")

    def put(self, path: str, content: bytes) -> None:
        _, _, kind, key, name = path.split("/", 4)
        with self.lock:
            files = self.run(key).files if kind == "run" else self.artifacts[key].files
            files[name] = content


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Server

    def log_message(self, *_: Any) -> None:
        """No line in the test's output for each request."""

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            data = b""
            while length := int(self.rfile.readline().strip(), 16):
                data += self.rfile.read(length)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
        return gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data

    def _answer(self, content: Any, status: int = 200) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        with suppress(OSError):  # a client that has gone
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def _fails(self) -> bool:
        fault = self.store.fault
        time.sleep(fault.delay)
        if fault.drop:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return True
        if fault.status:
            self._body()
            self._answer({"errors": [{"message": "told to fail"}]}, fault.status)
            return True
        return False

    def do_GET(self) -> None:
        if not self._fails():
            _, kind, _, key, name = f"{self.path}////".split("/", 4)
            stored = self.store.artifacts[key].files[name.rstrip("/")] if kind == "get" else None
            self._answer(stored or {"ok": True})

    def do_PUT(self) -> None:
        if not self._fails():
            self.store.put(self.path, self._body())
            self._answer(b"")

    def do_POST(self) -> None:
        if self._fails():
            return
        body = self._body()
        if "/sdk/otel/" in self.path:
            self._answer(b"")
        elif self.path.endswith("/graphql"):
            self._graphql(json.loads(body))
        elif found := _STREAM.match(self.path):
            self.store.stream(found[3], json.loads(body))
            self._answer({"exitcode": None, "limits": {}})
        else:
            self.store.unknown.append(self.path)
            self._answer({}, 404)

    def _graphql(self, told: dict[str, Any]) -> None:
        found = _OPERATION.search(told["query"])
        operation = found[2] if found else "Viewer" if _VIEWER.match(told["query"]) else told["query"][:80]
        try:
            data = self.store.ask(operation, told.get("variables") or {})
        except Exception as error:  # a malformed answer takes wandb's service down; say what was wrong instead
            self.store.unknown.append(f"{operation}: {error!r}")
            data = None
        if data is None:
            self._answer({"errors": [{"message": f"unknown operation {operation}"}]}, 400)
        else:
            self._answer({"data": data})

"""A server on this machine that speaks as much of the Google Docs API as the script uses, sign-in included.

A document is a list of UTF-16 units from index 1 on, the last of them a newline that nothing may delete, with a style a
unit. As at Google, a batch is applied as a whole or not at all, and a place outside of the document is an error.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

TOKEN = "an-access-token"
EMPTY: Mapping[str, Any] = {"named": "NORMAL_TEXT", "bullet": False}


class Invalid(Exception):
    """A request that Google answers with 400."""


def encode(text: str) -> list[str]:
    raw = text.encode("utf-16-le")
    return [raw[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(raw), 2)]


def decode(units: list[str]) -> str:
    return "".join(units).encode("utf-16-le", "surrogatepass").decode("utf-16-le")


class Document:
    """Text with a style for each unit; a paragraph's style is that of its newline."""

    def __init__(self, text: str = "") -> None:
        self.units = encode(text + "\n")
        self.styles: list[dict[str, Any]] = [dict(EMPTY) for _ in self.units]
        self.revision = 1

    @property
    def text(self) -> str:
        return decode(self.units)

    @property
    def end(self) -> int:
        return len(self.units) + 1

    def json(self, name: str) -> dict[str, Any]:
        """As documents.get answers: a section break, then the paragraphs."""
        content: list[dict[str, Any]] = [{"endIndex": 1, "sectionBreak": {}}]
        for start, end in self._paragraphs():
            run = {
                "startIndex": start,
                "endIndex": end,
                "textRun": {"content": decode(self.units[start - 1 : end - 1])},
            }
            content.append({"startIndex": start, "endIndex": end, "paragraph": {"elements": [run]}})
        return {
            "documentId": name,
            "title": "Trainings",
            "revisionId": str(self.revision),
            "body": {"content": content},
        }

    def paragraphs(self) -> list[tuple[str, str, bool]]:
        """(text, named style, whether it is a bullet) of each."""
        return [
            (decode(self.units[a - 1 : b - 2]), self.styles[b - 2]["named"], self.styles[b - 2]["bullet"])
            for a, b in self._paragraphs()
        ]

    def styled(self, key: str) -> list[tuple[str, Any]]:
        """(text, value) of each run that has this text style."""
        out: list[tuple[list[str], Any]] = []
        last = None
        for unit, style in zip(self.units, self.styles, strict=True):
            value = style.get(key)
            if value is not None and value == last:
                out[-1][0].append(unit)
            elif value is not None:
                out.append(([unit], value))
            last = value
        return [(decode(units), value) for units, value in out]

    def _paragraphs(self) -> list[tuple[int, int]]:
        ends = [i + 2 for i, unit in enumerate(self.units) if unit == "\n"]
        return list(zip([1, *ends[:-1]], ends, strict=True))

    def insert(self, location: Mapping[str, int], text: str) -> None:
        at = location["index"]
        if not 1 <= at < self.end:
            raise Invalid(f"Index {at} must be less than the end index of the referenced segment, {self.end}.")
        new = encode(text)
        kept = dict(self.styles[at - 1 if at == 1 else at - 2])
        self.units[at - 1 : at - 1] = new
        self.styles[at - 1 : at - 1] = [dict(kept) for _ in new]

    def places(self, given: Mapping[str, int]) -> range:
        start, end = given["startIndex"], given["endIndex"]
        if not 1 <= start < end <= self.end:
            raise Invalid(f"The range [{start}, {end}) is not within [1, {self.end}).")
        return range(start - 1, end - 1)

    def delete(self, given: Mapping[str, int]) -> None:
        places = self.places(given)
        if places.stop == len(self.units):
            raise Invalid("The range cannot include the newline character at the end of the segment.")
        del self.units[places.start : places.stop], self.styles[places.start : places.stop]

    def touched(self, given: Mapping[str, int]) -> list[dict[str, Any]]:
        """The styles of the paragraphs that a range overlaps."""
        places = self.places(given)
        return [
            style
            for a, b in self._paragraphs()
            if a - 1 < places.stop and b - 1 > places.start
            for style in self.styles[a - 1 : b - 1]
        ]

    def apply(self, request: Mapping[str, Any]) -> None:
        ((kind, given),) = request.items()
        if kind == "insertText":
            self.insert(given["location"], given["text"])
        elif kind == "deleteContentRange":
            self.delete(given["range"])
        elif kind == "updateParagraphStyle":
            for style in self.touched(given["range"]):
                style["named"] = given["paragraphStyle"]["namedStyleType"]
        elif kind in ("createParagraphBullets", "deleteParagraphBullets"):
            for style in self.touched(given["range"]):
                style["bullet"] = kind == "createParagraphBullets"
        elif kind == "updateTextStyle":
            for place in self.places(given["range"]):
                for field in given["fields"].split(","):
                    self.styles[place][field] = given["textStyle"].get(field)
        else:
            raise Invalid(f"Invalid JSON payload received. Unknown name {kind!r}.")


class Google(ThreadingHTTPServer):
    """The server: its documents, what it was asked, and the answers that it gives before it behaves.

    failures: (status, reason) of the next answers to requests for documents. signs_in: whether keys are accepted.
    changed_in_between: someone else writes into the document right after it was read.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.documents: dict[str, Document] = {}
        self.asked: list[tuple[str, str]] = []
        self.failures: list[tuple[int, str]] = []
        self.signs_in = True
        self.changed_in_between = False
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Google

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def answer(self, status: int, body: Mapping[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def refuse(self, status: int, reason: str) -> None:
        self.answer(status, {"error": {"code": status, "message": reason, "status": "FAILED"}})

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def named(self, suffix: str) -> tuple[str, Document] | None:
        """The document that the request is about, if it may be answered at all."""
        path = self.path.partition("?")[0]
        self.server.asked.append((self.command, path))
        found = re.fullmatch(rf"/v1/documents/([\w-]+){suffix}", path)
        if self.server.failures:
            self.refuse(*self.server.failures.pop(0))
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.refuse(401, "Request had invalid authentication credentials.")
        elif found is None or found[1] not in self.server.documents:
            self.refuse(404, "Requested entity was not found.")
        else:
            return found[1], self.server.documents[found[1]]
        return None

    def do_GET(self) -> None:
        with self.server.lock:
            if (found := self.named("")) is not None:
                name, document = found
                self.answer(200, document.json(name))
                if self.server.changed_in_between:
                    document.revision += 1

    def do_POST(self) -> None:
        with self.server.lock:
            raw = self.body()
            if self.path == "/token":
                self.sign_in(parse_qs(raw.decode()))
            elif (found := self.named(":batchUpdate")) is not None:
                self.update(*found, json.loads(raw))

    def sign_in(self, form: Mapping[str, list[str]]) -> None:
        self.server.asked.append(("POST", "/token"))
        if form.get("grant_type") != ["urn:ietf:params:oauth:grant-type:jwt-bearer"] or not form.get("assertion"):
            self.answer(400, {"error": "unsupported_grant_type"})
        elif not self.server.signs_in:
            self.answer(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        else:
            self.answer(200, {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})

    def update(self, name: str, document: Document, body: Mapping[str, Any]) -> None:
        if body.get("writeControl", {}).get("requiredRevisionId") != str(document.revision):
            self.refuse(400, "The required revision ID does not match the latest revision.")
            return
        before = list(document.units), [dict(style) for style in document.styles]
        try:
            for request in body["requests"]:
                document.apply(request)
        except Invalid as error:
            document.units, document.styles = before
            self.refuse(400, str(error))
            return
        document.revision += 1
        self.answer(200, {"documentId": name, "replies": [{} for _ in body["requests"]]})

"""Publish SESSION_SUMMARY.md to a Google Doc; GOOGLE_DOCS_SYNC.md says how to set it up.

    python scripts/publish_session_summary_to_gdocs.py --source SESSION_SUMMARY.md --mode append

Reads GOOGLE_DOC_ID, and GOOGLE_SERVICE_ACCOUNT_FILE or GOOGLE_SERVICE_ACCOUNT_JSON. Needs Google's client alone (the
extra `automation`). Exit codes: 0 done, or nothing to do; 1 Google refused or could not be reached; 2 an input that
cannot be used. A text that the document holds already is not written again, so a repeated run changes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from gdocs_text import Line, parse, plain, requests

SCOPE = "https://www.googleapis.com/auth/documents"
TIMEOUT = 30  # seconds a request; Google answers in one or two
RETRIES = 3  # for 429 and 5xx, with growing pauses: 14 s at most
KEYS = ("client_email", "private_key", "token_uri")


class Unusable(Exception):
    """What was given cannot be used; the text says what to do."""


class Refused(Exception):
    """Google refused or could not be reached; the text says what to do."""


def document_id(environment: Mapping[str, str]) -> str:
    """The document's id; its whole address is understood too."""
    given = environment.get("GOOGLE_DOC_ID", "").strip()
    if not given:
        raise Unusable("GOOGLE_DOC_ID is not set; it is the part of the document's address between /d/ and /edit")
    found = re.search(r"/document/d/([\w-]+)", given)
    name = found[1] if found else given
    if not re.fullmatch(r"[\w-]+", name):
        raise Unusable(f"GOOGLE_DOC_ID is {given!r}, which is no document's id: copy what stands between /d/ and /edit")
    return name


def account(environment: Mapping[str, str]) -> dict[str, str]:
    """The service account's key, as Google's console gives it. What it holds is never printed."""
    text, file = (environment.get(f"GOOGLE_SERVICE_ACCOUNT_{kind}", "").strip() for kind in ("JSON", "FILE"))
    if text and file:
        raise Unusable("GOOGLE_SERVICE_ACCOUNT_JSON and GOOGLE_SERVICE_ACCOUNT_FILE are both set; unset one of them")
    if not text and not file:
        raise Unusable(
            "no credential: set GOOGLE_SERVICE_ACCOUNT_FILE to the path of a service account's key, "
            "or GOOGLE_SERVICE_ACCOUNT_JSON to what stands in it"
        )
    where = f"GOOGLE_SERVICE_ACCOUNT_FILE ({file})" if file else "GOOGLE_SERVICE_ACCOUNT_JSON"
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8") if file else text)
    except OSError as error:
        raise Unusable(f"{where} cannot be read: {error.strerror}") from error
    except ValueError:
        raise Unusable(f"{where} is no JSON; download the account's key anew, in the format JSON") from None
    if not isinstance(found, dict) or found.get("type") != "service_account":
        kind = found.get("type") if isinstance(found, dict) else type(found).__name__
        raise Unusable(f"{where} is of type {kind!r}, not 'service_account': make a key of a service account")
    missing = [key for key in KEYS if not found.get(key)]
    if missing:
        raise Unusable(f"{where} lacks {', '.join(missing)}; download the account's key anew, in the format JSON")
    return found


def service(key: Mapping[str, str], endpoint: str | None) -> Any:
    """Google's own client for the Docs API; no network is used yet."""
    try:
        import google_auth_httplib2
        import httplib2
        from google.oauth2 import service_account
        from googleapiclient.discovery import build
    except ImportError as error:
        raise Unusable(f"{error.name} is not installed; type: pip install 'neuraldbg[automation]'") from error
    try:
        credentials = service_account.Credentials.from_service_account_info(key, scopes=[SCOPE])
    except ValueError:
        raise Unusable("the private_key of the service account is damaged; download the account's key anew") from None
    http = google_auth_httplib2.AuthorizedHttp(credentials, http=httplib2.Http(timeout=TIMEOUT))
    options = {"api_endpoint": endpoint} if endpoint else None
    return build("docs", "v1", http=http, client_options=options, cache_discovery=False, static_discovery=True)


def publish(lines: Sequence[Line], document: str, key: Mapping[str, str], mode: str, endpoint: str | None) -> str:
    """Write the lines and say what was done. Raises Refused with what to do about it."""
    docs = service(key, endpoint).documents()
    from google.auth.exceptions import GoogleAuthError, TransportError
    from googleapiclient.errors import HttpError
    from httplib2.error import HttpLib2Error

    try:
        found = docs.get(documentId=document).execute(num_retries=RETRIES)
        content = found["body"]["content"]
        text = "".join(
            part.get("textRun", {}).get("content", "")
            for element in content
            for part in element.get("paragraph", {}).get("elements", ())
        )
        new = plain(lines)
        if text.rstrip("\n") == new if mode == "replace" else new in text:
            return f"nothing to do: {found.get('title', document)!r} holds this text already"
        body = {
            "requests": requests(lines, content[-1]["endIndex"], text, mode),
            # if someone writes in between, the places would be wrong: then nothing is written
            "writeControl": {"requiredRevisionId": found["revisionId"]},
        }
        docs.batchUpdate(documentId=document, body=body).execute(num_retries=RETRIES)
    except HttpError as error:
        raise Refused(_refusal(error.status_code, error.reason, document, key["client_email"])) from error
    except (TransportError, HttpLib2Error, OSError) as error:
        raise Refused(f"Google cannot be reached ({error}); try again later") from error
    except GoogleAuthError as error:
        said = error.args[0] if error.args else error
        raise Refused(f"Google does not accept the service account's key ({said}); make a new one") from error
    done = "replaced by" if mode == "replace" else "continued with"
    return f"{found.get('title', document)!r} was {done} {len(lines)} lines"


def _refusal(status: int, reason: str, document: str, email: str) -> str:
    what = {
        401: "the service account's key is not valid any more: make a new one",
        403: f"share the document with {email} as an editor, and enable the Google Docs API in the account's project",
        404: f"there is no document {document!r}, or it is not shared with {email}: check GOOGLE_DOC_ID, and share it",
        429: "too many requests: try again later",
    }.get(status, "try again later" if status >= 500 else "nothing was written; try again")
    return f"Google answers {status} ({reason}); {what}"


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """What was done, in a sentence. Raises Unusable and Refused."""
    parser = argparse.ArgumentParser(description="Publish a summary to a Google Doc.")
    parser.add_argument("--source", type=Path, default=Path("SESSION_SUMMARY.md"), help="the Markdown file")
    parser.add_argument("--mode", choices=("append", "replace"), default="append", help="what becomes of the document")
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, and contact nobody")
    parser.add_argument("--endpoint", metavar="URL", help="another server that speaks the Docs API")
    given = parser.parse_args(arguments)
    try:
        lines = parse(given.source.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unusable(f"{given.source}: {error.strerror}; `neuraldbg summary` writes it") from error
    except UnicodeDecodeError:
        raise Unusable(f"{given.source} is no text in UTF-8") from None
    if not lines:
        raise Unusable(f"{given.source} is empty: there is nothing to publish")
    if not given.dry_run:
        document, key = document_id(environment), account(environment)
        return publish(lines, document, key, given.mode, given.endpoint)
    print(plain(lines))
    notes = []
    for name, asked in (("document", document_id), ("account", lambda env: account(env)["client_email"])):
        try:
            notes.append(f"{name} {asked(environment)}")
        except Unusable as problem:
            notes.append(str(problem))
    return f"dry run: would {given.mode} {len(lines)} lines; {'; '.join(notes)}"


def _end(error: Exception, code: int) -> NoReturn:
    print(f"error: {error}", file=sys.stderr)
    raise SystemExit(code)


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:], os.environ))
    except Unusable as error:
        _end(error, 2)
    except Refused as error:
        _end(error, 1)

"""The script against a server that speaks the Docs API: Google's own client, real keys, no account."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import publish_session_summary_to_gdocs as script
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from .docs_server import Document, Google

SUMMARY = """# Training summary, 2026-01-02

2 trainings: 1 failed, 1 healthy

## wide\\_net \N{ROCKET}: failed

**Neuron death detected in layer 'act1' at step 22**

- **Next:** halve the rate
- **Report:** [runs/1](https://host/#/runs/1)
"""
SHOWN = [
    ("Training summary, 2026-01-02", "HEADING_1", False),
    ("2 trainings: 1 failed, 1 healthy", "NORMAL_TEXT", False),
    ("wide_net \N{ROCKET}: failed", "HEADING_2", False),
    ("Neuron death detected in layer 'act1' at step 22", "NORMAL_TEXT", False),
    ("Next: halve the rate", "NORMAL_TEXT", True),
    ("Report: runs/1", "NORMAL_TEXT", True),
]
Publish = Callable[..., str]


@pytest.fixture(name="google")
def _google() -> Iterator[Google]:
    with Google() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(name="pem", scope="module")
def _pem() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    kind, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, kind, none).decode()


@pytest.fixture(name="environment")
def _environment(google: Google, pem: str) -> dict[str, str]:
    """A document and a service account that may write to it."""
    account = {
        "type": "service_account",
        "project_id": "trainings",
        "private_key_id": "1",
        "private_key": pem,
        "client_email": "writer@trainings.example",
        "token_uri": f"{google.address}/token",
    }
    return {"GOOGLE_DOC_ID": "doc-1", "GOOGLE_SERVICE_ACCOUNT_JSON": json.dumps(account)}


@pytest.fixture(name="publish")
def _publish(google: Google, environment: dict[str, str], tmp_path: Path) -> Publish:
    """Runs the script's main with a summary in a file."""
    file = tmp_path / "SESSION_SUMMARY.md"

    def run(*arguments: str, text: str = SUMMARY) -> str:
        file.write_text(text, encoding="utf-8")
        return str(script.main(["--source", str(file), "--endpoint", google.address, *arguments], environment))

    return run


# what cannot be used is said before anything is sent


def test_without_a_document_it_says_where_its_id_stands(
    publish: Publish, environment: dict[str, str], google: Google
) -> None:
    del environment["GOOGLE_DOC_ID"]
    with pytest.raises(script.Unusable, match=r"GOOGLE_DOC_ID is not set; it is the part .* between /d/ and /edit"):
        publish()
    assert google.asked == []


@pytest.mark.parametrize("given", ["two words", "https://docs.google.com/spreadsheets/x"])
def test_what_is_no_documents_id_is_quoted(publish: Publish, environment: dict[str, str], given: str) -> None:
    environment["GOOGLE_DOC_ID"] = given
    with pytest.raises(script.Unusable, match=f"GOOGLE_DOC_ID is '{given}'"):
        publish()


def test_without_a_credential_it_names_both_ways_to_give_one(publish: Publish, environment: dict[str, str]) -> None:
    del environment["GOOGLE_SERVICE_ACCOUNT_JSON"]
    with pytest.raises(script.Unusable, match=r"GOOGLE_SERVICE_ACCOUNT_FILE .* or GOOGLE_SERVICE_ACCOUNT_JSON"):
        publish()


def test_two_credentials_are_one_too_many(publish: Publish, environment: dict[str, str]) -> None:
    environment["GOOGLE_SERVICE_ACCOUNT_FILE"] = "key.json"
    with pytest.raises(script.Unusable, match="both set; unset one"):
        publish()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON; download the account's key anew"),
        ("[]", "is of type 'list', not 'service_account'"),
        ('{"type": "authorized_user"}', "is of type 'authorized_user', not 'service_account'"),
        ('{"type": "service_account", "client_email": "a"}', "lacks private_key, token_uri"),
    ],
)
def test_a_credential_of_another_kind_is_refused(
    publish: Publish, environment: dict[str, str], text: str, said: str
) -> None:
    environment["GOOGLE_SERVICE_ACCOUNT_JSON"] = text
    with pytest.raises(script.Unusable, match=said):
        publish()


def test_a_damaged_key_is_refused_and_not_shown(publish: Publish, environment: dict[str, str]) -> None:
    key = json.loads(environment["GOOGLE_SERVICE_ACCOUNT_JSON"]) | {"private_key": "-----BEGIN hidden-----"}
    environment["GOOGLE_SERVICE_ACCOUNT_JSON"] = json.dumps(key)
    with pytest.raises(script.Unusable, match=r"private_key .* is damaged") as error:
        publish()
    assert "hidden" not in str(error.value)


def test_a_key_file_that_is_not_there_is_named(publish: Publish, environment: dict[str, str], tmp_path: Path) -> None:
    del environment["GOOGLE_SERVICE_ACCOUNT_JSON"]
    environment["GOOGLE_SERVICE_ACCOUNT_FILE"] = str(tmp_path / "gone.json")
    with pytest.raises(script.Unusable, match=r"gone\.json.* cannot be read: No such file"):
        publish()


def test_a_missing_or_empty_page_is_named_with_what_writes_it(publish: Publish, tmp_path: Path) -> None:
    with pytest.raises(script.Unusable, match=r"no\.md: No such file .*; `neuraldbg summary` writes it"):
        publish("--source", str(tmp_path / "no.md"))
    with pytest.raises(script.Unusable, match="is empty"):
        publish(text="\n\n")


# what Google refuses


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        (401, "Invalid", "is not valid any more"),
        (403, "The caller does not have permission", "share the document with writer@trainings.example as an editor"),
        (429, "Quota exceeded", "too many requests"),
        (500, "Internal error", "try again later"),
    ],
)
def test_a_refusal_says_what_to_do(
    publish: Publish, google: Google, monkeypatch: pytest.MonkeyPatch, status: int, reason: str, said: str
) -> None:
    monkeypatch.setattr(script, "RETRIES", 0)
    google.documents["doc-1"] = Document("old")
    google.failures = [(status, reason)] * 3  # a 401 makes the client sign in anew and ask again
    with pytest.raises(script.Refused, match=rf"Google answers {status} \({reason}\); .*{said}"):
        publish()
    assert google.documents["doc-1"].text == "old\n"


def test_a_document_that_is_not_there_is_named(publish: Publish) -> None:
    with pytest.raises(script.Refused, match="there is no document 'doc-1', or it is not shared with writer@"):
        publish()


def test_a_key_that_was_deleted_is_told_apart(publish: Publish, google: Google) -> None:
    google.signs_in = False
    with pytest.raises(script.Refused, match=r"does not accept the service account's key \(invalid_grant"):
        publish()


def test_a_server_that_is_gone_is_an_error_in_words(
    google: Google, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "s.md").write_text(SUMMARY)
    google.documents["doc-1"] = Document()
    with Google() as other:
        gone = other.address
    with pytest.raises(script.Refused, match="Google cannot be reached"):
        script.main(["--source", str(tmp_path / "s.md"), "--endpoint", gone], environment)


def test_nothing_is_written_into_a_document_that_changed_in_between(publish: Publish, google: Google) -> None:
    google.documents["doc-1"] = Document("old")
    google.changed_in_between = True
    with pytest.raises(script.Refused, match=r"Google answers 400 .*nothing was written; try again"):
        publish()
    assert google.documents["doc-1"].text == "old\n"


# what is written


def test_a_moment_of_trouble_is_waited_out(publish: Publish, google: Google) -> None:
    google.documents["doc-1"] = Document()
    google.failures = [(503, "Backend error")]
    assert publish() == "'Trainings' was continued with 6 lines"


def test_an_empty_document_holds_the_page_alone(publish: Publish, google: Google) -> None:
    google.documents["doc-1"] = document = Document()
    publish()
    assert document.paragraphs() == SHOWN


def test_append_leaves_what_was_there(publish: Publish, google: Google) -> None:
    google.documents["doc-1"] = document = Document("Monday\n\N{ROCKET} all well")
    for style in document.styles[7:]:  # the last line is a bullet in bold: the page must not look like it
        style.update(bullet=True, bold=True, named="HEADING_3")
    publish("--mode", "append")
    assert document.paragraphs() == [
        ("Monday", "NORMAL_TEXT", False),
        ("\N{ROCKET} all well", "HEADING_3", True),
        *SHOWN,
    ]
    assert document.styled("bold")[0] == ("\N{ROCKET} all well\n", True)


def test_replace_leaves_the_page_alone(publish: Publish, google: Google) -> None:
    google.documents["doc-1"] = document = Document("Monday\n\N{ROCKET} all well\n")
    assert publish("--mode", "replace") == "'Trainings' was replaced by 6 lines"
    assert document.paragraphs() == SHOWN


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_the_same_page_again_changes_nothing(publish: Publish, google: Google, mode: str) -> None:
    google.documents["doc-1"] = document = Document("Monday")
    publish("--mode", mode)
    revision = document.revision
    assert publish("--mode", mode) == "nothing to do: 'Trainings' holds this text already"
    assert document.revision == revision


def test_bold_and_links_lie_where_they_are_in_the_page(publish: Publish, google: Google) -> None:
    google.documents["doc-1"] = document = Document("Monday")
    publish()
    bold = [text for text, _ in document.styled("bold")]
    assert bold == ["Neuron death detected in layer 'act1' at step 22", "Next:", "Report:"]
    assert document.styled("link") == [("runs/1", {"url": "https://host/#/runs/1"})]


def test_the_documents_whole_address_will_do(publish: Publish, google: Google, environment: dict[str, str]) -> None:
    google.documents["doc-1"] = document = Document()
    environment["GOOGLE_DOC_ID"] = "https://docs.google.com/document/d/doc-1/edit#heading=h.1"
    publish()
    assert document.paragraphs() == SHOWN


def test_a_dry_run_asks_nobody_and_says_what_is_missing(
    publish: Publish, google: Google, environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = publish("--dry-run", "--mode", "replace")
    assert said == "dry run: would replace 6 lines; document doc-1; account writer@trainings.example"
    assert "\n".join(text for text, _, _ in SHOWN) in capsys.readouterr().out
    environment.clear()
    assert "GOOGLE_DOC_ID is not set" in publish("--dry-run") and google.asked == []


def test_the_command_publishes_from_a_key_file_and_ends_with_two_without_one(
    google: Google, environment: dict[str, str], tmp_path: Path
) -> None:
    """The one test through the command line itself: exit codes, and where it prints."""
    google.documents["doc-1"] = document = Document()
    (tmp_path / "SESSION_SUMMARY.md").write_text(SUMMARY, encoding="utf-8")
    (tmp_path / "key.json").write_text(environment["GOOGLE_SERVICE_ACCOUNT_JSON"])
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GOOGLE_")}
    clean["GOOGLE_DOC_ID"] = "doc-1"
    command = [sys.executable, str(script.__file__), "--endpoint", google.address]

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env=clean | more, capture_output=True, text=True, timeout=120, check=False
        )

    refused = run()
    assert (refused.returncode, refused.stdout) == (2, "") and refused.stderr.startswith("error: no credential: set")
    done = run(GOOGLE_SERVICE_ACCOUNT_FILE="key.json")
    assert (done.returncode, done.stdout) == (0, "'Trainings' was continued with 6 lines\n"), done.stderr
    assert document.paragraphs() == SHOWN

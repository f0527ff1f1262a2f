"""The webhook posts the verdict once, when the training ends, and stays out of its way."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import torch
from neuraldbg_webhook import ADDRESS, Webhook, message, sink
from torch import nn

from neuraldbg import NeuralDbg

Posts = list[dict[str, object]]


@pytest.fixture
def server() -> Iterator[tuple[str, Posts]]:
    """The address of a server, and what was posted there."""
    got: Posts = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}", got
        listening.shutdown()
        thread.join()


def train(*sinks: Webhook) -> NeuralDbg:
    """Twenty steps, and an infinity in the tenth batch."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, sinks=list(sinks)) as dbg:
        for k in range(20):
            inputs = torch.randn(16, 4)
            if k == 9:
                inputs[3, 2] = float("inf")
            loss = (model(inputs) - 1).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return dbg


def test_without_an_address_there_is_no_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ADDRESS, raising=False)
    assert sink() is None


def test_what_is_no_web_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS, "file:///etc/hosts")
    with pytest.raises(ValueError, match="begins with http"):
        sink()


def test_the_verdict_is_posted_once(server: tuple[str, Posts]) -> None:
    address, got = server
    dbg = train(Webhook(address))
    assert got == [message(dbg.diagnose())]
    assert (got[0]["verdict"], got[0]["cause"], got[0]["step"]) == ("failed", "inf_in_input", 9)


def test_an_address_that_does_not_answer_does_not_end_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEURALDBG_STRICT", raising=False)
    dbg = train(Webhook("http://127.0.0.1:9"))
    assert dbg.diagnose().steps == 20

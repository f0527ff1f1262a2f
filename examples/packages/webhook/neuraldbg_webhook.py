"""A sink that posts the verdict of each finished training to a web address, as JSON.

    NEURALDBG_WEBHOOK=https://chat.example/hooks/42 python train.py

Without that variable there is no sink, and nothing is posted. It is called on a thread of its own: an address that does
not answer holds the training up for no step, and its end by at most `close_timeout`.
"""

from __future__ import annotations

import json
import os
import urllib.request

from neuraldbg import Diagnosis, SemanticEvent
from neuraldbg.record import RunFacts

ADDRESS = "NEURALDBG_WEBHOOK"


def sink() -> Webhook | None:
    """What the entry point names: asked once for each session that starts."""
    address = os.environ.get(ADDRESS)
    return Webhook(address) if address else None


class Webhook:
    """Posts once, when the training ends."""

    close_timeout = 5.0  # seconds that the end of a session may wait

    def __init__(self, address: str) -> None:
        if not address.startswith(("http://", "https://")):
            raise ValueError(f"{ADDRESS}={address!r} is no web address; it begins with http:// or https://")
        self.address = address

    def open(self, facts: RunFacts) -> None: ...

    def facts(self, update: RunFacts) -> None: ...

    def event(self, event: SemanticEvent) -> None: ...

    def close(self, diagnosis: Diagnosis) -> None:
        """Raises what urllib does where the address does not answer: NeuralDBG logs it once, and goes on."""
        body = json.dumps(message(diagnosis)).encode()
        request = urllib.request.Request(self.address, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=self.close_timeout):
            pass


def message(diagnosis: Diagnosis) -> dict[str, object]:
    """What is posted. The text holds no sample of the data, but names of layers and of files of the training."""
    top = diagnosis.top
    return {
        "verdict": str(diagnosis.verdict),
        "cause": top.cause if top else None,
        "layer": top.layer_name if top else None,
        "step": top.step if top else None,
        "text": str(diagnosis),
    }

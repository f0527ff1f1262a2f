"""The same loop at a rate the model bears: the verdict is "healthy", and nothing is blamed."""

from __future__ import annotations

from plain_loop import main

if __name__ == "__main__":
    dbg = main(rate=0.03)
    print(dbg.diagnose())
    assert dbg.explain_failure() == []

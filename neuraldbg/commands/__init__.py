"""One command a file; `neuraldbg.cli` puts them together."""

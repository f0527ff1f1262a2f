"""Spokes: one file a tracker or framework, installed and imported as neuraldbg.integrations."""

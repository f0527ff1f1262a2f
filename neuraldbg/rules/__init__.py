"""Causes: a run -> claims; one file a cause, whose docstring is its page."""

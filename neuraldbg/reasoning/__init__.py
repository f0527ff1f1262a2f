"""From events to causes: finds detectors and rules, builds the graph, lets claims compete, calibrates."""

"""A Diagnosis as text, Markdown, Mermaid, SVG, HTML and JSON; the only place that makes sentences."""

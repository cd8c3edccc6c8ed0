"""Two versions of hvd, measured by turns: what versions.py builds (versions), measures (cases, launches), and how it
judges the results (verdict)."""

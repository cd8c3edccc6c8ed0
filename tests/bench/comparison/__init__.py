"""hvd beside its peers: what compare.py measures (cases), how (launching), and what it makes of it (gates, report)."""

"""What scripts derive from for elastic jobs."""

"""Input pipelines that run in processes of their own, away from the training: see `compute_service`."""

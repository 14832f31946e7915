"""What a run keeps and shows: checkpoints, best weights, reports, charts, its summary."""

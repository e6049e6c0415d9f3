"""Where batches go: one file a framework. Frameworks are imported here and nowhere else."""

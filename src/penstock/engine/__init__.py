"""How a chain runs: the plan, the stream, and where functions run."""

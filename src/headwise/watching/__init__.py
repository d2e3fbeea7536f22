"""Real models: where they are found, and how their attention is watched."""

"""Records the attention calls of a running model, and gates its heads."""

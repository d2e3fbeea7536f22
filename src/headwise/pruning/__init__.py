"""A model becomes a smaller one that loads."""

"""Explore a model's heads live in the browser or in a notebook."""

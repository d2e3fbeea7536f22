"""A model, live in the browser or in a notebook."""

"""Makes a model smaller by cutting heads, and exports the result."""

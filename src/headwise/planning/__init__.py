"""Planning: how many heads, and what they cost. Arithmetic alone: nothing here imports torch."""

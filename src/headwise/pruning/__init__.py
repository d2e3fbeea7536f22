"""Cutting heads: out of a model for good, by families of models that it is known how to cut."""

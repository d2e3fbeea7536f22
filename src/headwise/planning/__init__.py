"""Computes the costs of a model's heads from its sizes, without torch."""

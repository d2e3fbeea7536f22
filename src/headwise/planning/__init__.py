"""Sizes of a model -> the costs of its heads, without torch."""

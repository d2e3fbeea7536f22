"""Sizes of a model become its costs; needs no torch."""

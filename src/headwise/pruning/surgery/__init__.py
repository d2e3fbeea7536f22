"""Removes heads from a model's weights and checks that this equals silencing them."""

"""Removes heads from the weights, and checks the result against silencing them."""

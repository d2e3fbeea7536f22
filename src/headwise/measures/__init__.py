"""Turns attention calls into sums for each head."""

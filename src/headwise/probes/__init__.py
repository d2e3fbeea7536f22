"""Sentences with gold relations between words, and the scoring of heads against them."""

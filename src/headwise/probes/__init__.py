"""Sentences with gold relations, and how often each head finds these relations."""

"""Sweeps: small transformers that differ in their heads alone, trained where the truth is known."""

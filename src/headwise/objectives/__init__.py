"""Losses that a model is measured by, and evaluations with standard errors."""

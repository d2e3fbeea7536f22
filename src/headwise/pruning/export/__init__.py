"""Writes a cut model as a folder that loads back equal."""

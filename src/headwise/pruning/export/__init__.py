"""Writes a cut model to a folder and checks that it loads back unchanged."""

"""Compares two models: sizes, speed, quality on several kinds of text, and agreement."""

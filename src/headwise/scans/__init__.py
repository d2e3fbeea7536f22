"""Scans: measure every head on texts and probes, decide roles, and save results to a folder."""

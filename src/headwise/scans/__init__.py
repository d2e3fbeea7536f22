"""Texts, measures and probes become a Scan: sums, tables, roles, and a folder that resumes."""

"""Finds how many heads a task needs by training small models."""

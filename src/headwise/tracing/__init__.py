"""Tracing: every number of one attention computation, named, with its formula."""

"""Multi-head attention: queries, keys and values become mixed values."""

"""From attention calls to numbers per head: one measure a file; the scan runs and merges them."""

"""Which heads make a model give one answer rather than another, by activation patching."""

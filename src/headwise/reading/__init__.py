"""Text and tensors become batches that a model reads, with facts about every token."""

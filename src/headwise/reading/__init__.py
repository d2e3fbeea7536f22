"""Turns text and tensors into batches for a model, with facts about every token."""

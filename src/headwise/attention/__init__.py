"""The mathematics of multi-head attention, and the layer: tensors in, tensors out, no models."""

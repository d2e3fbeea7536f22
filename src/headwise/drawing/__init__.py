"""Drawing: numbers and labels as SVG and HTML text; it knows no heads, no models, no tensors."""

"""Drawing: numbers and labels as SVG and HTML text; it imports no heads, models or tensors."""

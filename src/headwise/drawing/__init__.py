"""Tables, HTML, SVG plots and heat maps; knows no heads, models or tensors."""

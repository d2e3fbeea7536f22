"""Tables, HTML, SVG plots and heat maps, independent of heads, models and tensors."""

"""A running model becomes attention calls; gates on heads."""

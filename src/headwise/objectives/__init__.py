"""What a model is measured by: losses, and evaluations with standard errors."""

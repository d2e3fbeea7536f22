"""How much a model needs each head."""

"""A task -> how many heads it takes, by training small models."""

"""One attention call becomes sums for each head."""

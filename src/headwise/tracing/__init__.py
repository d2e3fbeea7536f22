"""Every step of one attention layer on one text."""

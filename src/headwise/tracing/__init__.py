"""Every step of one layer on one text."""

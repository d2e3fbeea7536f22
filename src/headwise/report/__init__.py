"""A scan, importance and a cut become one HTML file."""

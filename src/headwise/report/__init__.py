"""Turn a scan, importance, a cut and a comparison into one HTML file."""

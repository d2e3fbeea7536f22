"""Turn a scan, importance and a cut into one HTML file."""

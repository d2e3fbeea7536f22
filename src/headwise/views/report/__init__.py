"""The report: a scan, importance and a cut as one page that needs no other file."""

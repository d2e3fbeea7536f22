"""Which heads to cut, and what a cut of any size costs."""

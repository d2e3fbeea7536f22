"""The explorer: heads, live, in the browser."""

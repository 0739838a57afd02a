"""One ranking flow, and what its answers hold."""

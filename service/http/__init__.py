"""Turns bytes into a Call and back: routes, bodies, dialects, answers."""

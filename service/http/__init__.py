"""From bytes to a Call and back: routes, bodies, dialects, answers."""

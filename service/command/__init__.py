"""The command `keyblock`: what the service does, from a terminal."""

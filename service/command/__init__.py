"""The command `keyblock`: the service's work, from a terminal."""

"""Documents by id: prepared once when they are stored, then ranked by their id alone."""

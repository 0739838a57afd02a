"""Documents by id: they are prepared once when they are stored, then ranked by their id alone."""

"""Everything between the reading of a call and its answer."""

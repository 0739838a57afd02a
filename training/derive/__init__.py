"""Derives lessons from a collection with gold passages: what a ranker must tell apart, and a collection seldom holds."""

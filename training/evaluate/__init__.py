"""Measuring rankers: runs, measures, tests and tables."""

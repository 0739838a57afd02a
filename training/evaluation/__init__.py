"""Measuring rankers: runs, measures, tests, tables and pictures."""

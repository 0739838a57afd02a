"""Offline training and measurement of rankers: collections, sampling, models, the loop, evaluation."""

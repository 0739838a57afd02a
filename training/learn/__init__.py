"""Trains a run by a recipe."""

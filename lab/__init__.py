"""The laboratory: systems that the papers compare with, their recipes and studies. Nothing outside of it imports it.

What it adds to recipes and bundles, it registers by the entry points in pyproject.toml.
"""

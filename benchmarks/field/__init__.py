"""Reproduces the tables of the evaluation paper (Boytsov et al. 2022): every system from the same start, with equal budgets."""

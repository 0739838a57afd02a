"""The tables of the evaluation paper (Boytsov et al. 2022), made anew: every system from one start, with equal budgets."""

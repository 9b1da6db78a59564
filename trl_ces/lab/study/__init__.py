"""Studies: methods x variants x seeds as independent, resumable runs, and the comparison of their results."""

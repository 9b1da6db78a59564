"""Compute the memory, disk space, schedule and run time of a recipe without a GPU, for `trl-ces plan`."""

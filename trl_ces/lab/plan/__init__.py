"""Compute the memory, disk space, schedule and running time of a recipe without a GPU, for `trl-ces plan`."""

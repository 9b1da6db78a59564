"""Compute the memory, disk space, schedule and hours of a recipe without a GPU, for `trl-ces plan`."""

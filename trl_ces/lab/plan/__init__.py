"""What a recipe asks of its machines: schedule and memory, computed without them. `trl-ces plan` prints it."""

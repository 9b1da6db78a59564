"""What a recipe will ask of its machines, worked out without them: schedule and memory. `trl-ces plan` prints it."""

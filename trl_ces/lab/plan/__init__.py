"""Memory, disk, schedule and hours of a recipe, computed without a GPU. `trl-ces plan` prints them."""

"""The package's rooms, from the ground up."""

# From the ground up. A room is a folder, or a file at the package's root; it imports only from rooms above it in this
# list. `__init__` hands the two public names on and is no room. What a training needs, the core, comes first; the lab
# stands on it.
CORE = (
    "support",
    "grading.qwen",
    "grading",
    "methods",
    "config",
    "layers",
    "trainer",
    "rewards",
    "train",
)


LAB = (
    "lab.testing",
    "lab.evaluation.code",
    "lab.evaluation",
    "lab.tasks",
    "lab.inspect",
    "lab.plan",
    "lab.study",
    "lab.hub",
    "cli",
)

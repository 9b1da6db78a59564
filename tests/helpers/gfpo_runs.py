"""What GFPO keeps of a scripted rollout."""

# The metrics that tell of all completions, as without GFPO.
OF_ALL = [f"rewards/scripted_{name}_reward/{part}" for name in ("accuracy", "bonus") for part in ("mean", "std")]

"""A small world of additions, SmolLM2 and the tasks of reasoning-gym: what a CPU trains and measures offline."""

"""Toy tasks: additions with small models, SmolLM2, and tasks of reasoning-gym, all trained on a CPU."""

"""Toy tasks that train on a CPU: additions with small models, SmolLM2, and reasoning-gym tasks."""

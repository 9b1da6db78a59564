"""Toy tasks for training on a CPU: addition problems for small models, a task for SmolLM2, and reasoning-gym tasks."""

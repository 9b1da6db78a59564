"""Hugging Face Hub: a training's model, private by default, with card and report."""

"""Hugging Face Hub: a training's model, private by default, with card and report.

- `staging.py`: the folder that is uploaded
- `facts.py`: what a run does not know of its model, for the card
- `push.py`: one push, as `trl-ces push` makes it
- `publisher.py`: pushes during and after training
"""

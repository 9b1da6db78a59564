"""Evaluation, studies, inspection, memory plans and toy tasks; training does not import this package."""

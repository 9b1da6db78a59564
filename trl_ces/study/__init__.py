"""Methods x seeds x variants as independent, resumable cells, and the comparison that comes out of them.

`plan.py` reads a study's YAML into cells, `results.py` turns finished cells into rows, `comparison.py` rows into
means, intervals and tables. Nothing here starts a process: `cli/study.py` does.
"""

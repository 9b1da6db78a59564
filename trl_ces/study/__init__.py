"""Methods x seeds x variants as independent, resumable runs, and the comparison of their results.

`cells.py` reads a study's YAML, `folder.py` what a run's folder holds, `processes.py` runs what is missing,
`measuring.py` measures the models, `results.py` makes rows and curves, `comparison.py` means and tables; `run.py`
leads through them. `quickstart.py` compares two methods on the small world without a YAML.
"""

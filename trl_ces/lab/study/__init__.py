"""Methods x seeds x variants as independent, resumable runs, and the comparison of their results.

`run.py` leads through it: `cells.py` reads a study's YAML, `folder.py` what a run's folder holds, `processes.py` runs
what is missing, `measuring.py` measures the models (`held_out.py`: on problems that a recipe holds out), `results.py`
makes rows and curves, `comparison.py` means and tables, `front.py` accuracy against tokens, `pictures.py` pictures.
`quickstart.py` compares two methods on the small world without a YAML.
"""

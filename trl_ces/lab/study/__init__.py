"""Methods x variants x seeds as independent, resumable runs, and the comparison of their results.

`run.py` is the entry point. `cells.py` reads a study's YAML, `folder.py` the state of a run, `processes.py` runs
what is missing, `measuring.py` measures the models (`held_out.py`: on problems that a recipe holds out), `results.py`
writes rows and curves, `comparison.py` the tables. `quickstart.py` compares DAPO and CES on the toy task.
"""

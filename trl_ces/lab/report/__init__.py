"""One page about runs: pictures, tables and tokens of what training, study and evaluation wrote.

`runs.py` reads the folders, by `trainings.py` and `studies.py`. `evaluations.py` compares evaluations. `token_runs.py`
samples the saved models, `tokens.py` is the file format of what they write, `shaped_pairs.py` counts it. `figures.py`
with `picture.py` and `viewer.py` are parts of the page, `page.py` makes it.
"""

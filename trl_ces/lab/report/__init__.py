"""One page about runs: pictures, tables and tokens of what training, study and evaluation wrote.

`runs.py` reads the folders, by `trainings.py` and `studies.py`. `evaluations.py` compares evaluations, `questions.py`
splits questions by difficulty. `token_runs.py` samples the saved models, `tokens.py` is the file format of what they
answer, `shaped_pairs.py` counts it. `cards.py`, `figures.py` with `picture.py`, `tables.py` and `viewer.py` are the
parts of the page, `page.py` makes it.
"""

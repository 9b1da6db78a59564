"""One page about runs: pictures, tables and tokens of what training, study and evaluation wrote.

`runs.py` reads the folders. `evaluations.py` puts evaluations side by side, `questions.py` parts questions by
difficulty, `tokens.py` holds the tokens that CES shapes and `shaped_forks.py` counts them. `picture.py` and
`figures.py` draw, `cards.py` picks the first numbers, `tables.py` lays out the paper's tables, `viewer.py` the
answers, `page.py` puts all into one HTML file. Nothing here loads a model: `cli/report_tokens.py` does.
"""

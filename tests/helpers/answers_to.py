def answers_to(table):
    """(gold, answer, verdict) for each answer of a table of golds, right answers and wrong answers."""
    return [(gold, answer, answer in right) for gold, right, wrong in table for answer in (*right, *wrong)]

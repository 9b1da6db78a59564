"""
The second verdict: what the Qwen2.5-Math evaluation script would say. Written from the description of its rules in
docs/evaluation.md; no line of it is copied.

`extract.py` finds the answer and prepares the gold, `normalise.py` rewrites both, `equality.py` compares them, and
`symbolic.py` is the algebra, for workers only. Like the script's, the rules are looser than mathematics (times 100,
over 100, any bracket) and stricter (order, names) on purpose; the first verdict, `correct`, never uses them.
"""

"""
Grade like the Qwen2.5-Math evaluation script (docs/evaluation.md); no code is copied. The script's rules are looser
than mathematics in some cases (a factor of 100, any bracket) and stricter in others (order).
"""

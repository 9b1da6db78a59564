"""
Grade like the Qwen2.5-Math evaluation script (docs/evaluation.md), without copying its code. The script's rules are
looser than mathematics in some cases (a factor of 100, any bracket) and stricter in other cases (order).
"""

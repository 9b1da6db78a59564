"""
Grade like the Qwen2.5-Math evaluation script, by the rules in docs/evaluation.md; no code is copied. The rules are
both looser than mathematics (times 100, any bracket) and stricter (order).
"""

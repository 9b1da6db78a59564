"""
The second verdict: what the Qwen2.5-Math evaluation script would say, by the rules in docs/evaluation.md; none of its
lines is copied. Like the script's, they are looser than mathematics (times 100, any bracket) and stricter (order).
"""

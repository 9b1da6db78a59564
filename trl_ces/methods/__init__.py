"""The methods, as pure functions on tensors: how each shapes the advantages of a rollout, or rewards whole groups.

- `ces.py`: Conditional Entropy Shaping, arXiv 2605.19358, and its two ablations.
- `entropy_advantage.py`: the paper's baseline "Entropy Advantage", arXiv 2506.14758.
- Files with a `NAME_length_reward`: length rewards of whole groups; `group_reward.py` makes reward functions of them.
- `clip_cov.py`, `kl_cov.py`: Clip-Cov and KL-Cov, arXiv 2505.22617; `covariance.py`: what they share.
- `stare.py`, arXiv 2606.19236; `repo_r.py`, 2603.11682; `on_policy_sft.py`, 2602.13407: token rules too.
- `gfpo.py`, `qlpo.py`: GFPO, arXiv 2508.09726, and QLPO, 2607.21793: which completions get an advantage.
- `dot.py`: DOT, arXiv 2601.03969: where completions of all-correct groups are cut.
- `dler.py`: DLER, arXiv 2510.15110: advantages whitened over tokens.
- `groups.py`: a rollout's groups: correctness, accuracy, lengths.
- `metrics.py`: logged metrics.
- `rule.py`: what a token rule says of itself, and how it is found.
"""

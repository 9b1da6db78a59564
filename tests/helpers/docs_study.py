"""A study of two runs, for the commands of the documentation."""

STUDY = {
    "output_dir": "runs/study/small",
    "seeds": [0],
    "baseline": "DAPO",
    "methods": {"DAPO": {"config": ["arithmetic", "dapo"]}, "CES": {"config": "arithmetic"}},
    "overrides": {
        "model_name_or_path": "runs/arithmetic/base",
        "max_steps": 2,
        "logging_steps": 1,
        "per_device_train_batch_size": 32,
        "steps_per_generation": 1,
    },
    "evaluation": {
        "function": "trl_ces.lab.worlds.arithmetic_evaluation.evaluate",
        "num_problems": 4,
        "num_samples": 2,
    },
}

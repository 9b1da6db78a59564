"""recipes/slurm/ces.slurm with the lines that a person changes, submitted to the stand-in of Slurm."""

import os
import re
import subprocess

from processes import HERE, environment

RECIPES = HERE.parents[1] / "recipes"
SCRIPT = RECIPES / "slurm" / "ces.slurm"


def changed(folder, source=SCRIPT, **lines):
    """A script with the lines that a person changes, and a shorter pause."""
    text = source.read_text().replace("sleep 5 &", "sleep 0.1 &")
    for name, value in lines.items():
        pattern = rf"^(#SBATCH --{name.replace('_', '-')}|{name})=.*$"
        text, count = re.subn(pattern, lambda found, value=value: f"{found[1]}={value}", text, flags=re.MULTILINE)
        assert count == 1, name
    (folder / "ces.slurm").write_text(text)
    return folder / "ces.slurm"


def submit(folder, commands, script, *words, **variables):
    """Runs sbatch to its end; returns its code and what the job printed."""
    path = os.pathsep.join([str(commands), os.environ["PATH"]])
    finished = subprocess.run(
        ["sbatch", str(script), *words], cwd=folder, env=environment(PATH=path, **variables), timeout=1200, check=False
    )
    return finished.returncode, (folder / f"ces-{4711}.out").read_text()

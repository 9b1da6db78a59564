"""docs/plan.md shows what `trl-ces plan` prints, and how far it is off."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from trl_ces.cli.main import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "plan.md"
SHOWN = re.findall(r"```bash\n(trl-ces plan [^\n]*)\n```\n\n```text\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)

# A column's heading -> what the command prints for it.
PRINTED = {
    "steps a rollout": r"a rollout +([\d,]+) steps",
    "training": r"most while training +\| +([\d.]+) \|",
    "generating": r"most while generating +\| +([\d.]+) \|",
    "hours, predicted": r"^\| in all +\| [^|]+\| +([\d.]+(?: to [\d.]+)?) \|",
    "those that train idle, %": r"devices that train idle (\d+(?: to \d+)?) %",
    "the server idles, %": r"the server's (\d+(?: to \d+)?) %",
    "host memory": r"own memory: ([\d.]+) GiB for what is offloaded",
}


def rows():
    """(command, the words behind it, headings, figures) of the tables with a command in their first heading."""
    text = DOCS.read_text() + (ROOT / "docs" / "cluster.md").read_text()
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        heading, _, *body = (
            [cell.strip(" `") for cell in line.strip("|\n").split("|")] for line in table.splitlines()
        )
        if heading[0].startswith("trl-ces plan "):
            yield from ((heading[0], line[0].split("`")[0], heading[1:], line[1:]) for line in body)


ROWS = list(rows())


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_document_shows_what_the_command_prints(command, shown, capsys):
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out.splitlines() == shown.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("command", "words", "names", "figures"), ROWS, ids=[" ".join(row[:2]) for row in ROWS])
def test_a_row_of_figures_is_what_the_command_prints(command, words, names, figures, capsys):
    assert main(shlex.split(f"{command} {words}")[1:]) == 0
    said = capsys.readouterr().out
    found = {name: re.search(pattern, said, flags=re.MULTILINE) for name, pattern in PRINTED.items()}
    assert figures == [found[name][1] if found[name] else "-" for name in names]
    assert re.search(r"^Fits( barely)?: \d+ %", said, flags=re.MULTILINE)
    assert "server" not in words or said.count("So does the server.") == 1


def off_by(table):
    """Error of the plan in each row of the benchmark's table, in percent."""
    rows = re.findall(r"\| +([\d,]+) \| +([\d,]+) \| +([-+][\d.]+) % \|", table)
    exact = [
        100 * (float(planned.replace(",", "")) / float(measured.replace(",", "")) - 1) for planned, measured, _ in rows
    ]
    assert exact == pytest.approx([float(off) for _, _, off in rows], abs=0.1)
    return exact


def test_the_measured_memory_is_within_15_percent_of_the_plan():
    shown = off_by(DOCS.read_text())
    assert len(shown) == 9
    assert "within 4 % on a CPU" in DOCS.read_text()
    assert max(map(abs, shown)) <= 4


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measured by Linux's /proc")
def test_measured_anew_the_memory_is_within_15_percent_of_the_plan():
    command = [sys.executable, str(ROOT / "benchmarks" / "memory.py"), "--cases", "1", "5"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    measured = off_by(finished.stdout)
    assert len(measured) == 2
    assert max(map(abs, measured)) <= 15

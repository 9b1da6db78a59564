"""Grade completions of code benchmarks: run programs on EvalPlus inputs and compare outputs in the sandbox."""

import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ....support.errors import UserError
from ....support.prompts import after_thinking
from . import inside
from .sandbox import MARK, check_sandbox, run_sandboxed
from .tasks import CodeTask

PROGRAM = Path(inside.__file__).read_text(encoding="utf-8") + "\nmain(payload, send)\n"
# As in EvalPlus, the time limit of a call is four times the reference solution's time, but at least one second.
# Unlike in EvalPlus, these are CPU seconds.
MIN_SECONDS, REFERENCE_FACTOR = 1.0, 4.0
# Language and content of a fenced block; an unclosed block extends to the end of the text.
_BLOCK = re.compile(
    r"^[ \t]*(?:```|~~~)[ \t]*([A-Za-z0-9+_.-]*)[^\n]*(?:\n|\Z)(.*?)(?:^[ \t]*(?:```|~~~)[^\n]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_PYTHON = ("", "python", "python3", "py")


@dataclass(frozen=True)
class CodeGrade:
    """A completion's program and test results."""

    program: str | None  # `None` if the completion has no program
    # For each group of inputs, whether it and all previous groups passed; `None` if the reference solution fails.
    passed: list[bool | None]


@dataclass(frozen=True)
class _Reference:
    """Outputs and time limits from the reference solution of a task."""

    outputs: list[str]  # one line per group of inputs
    plain: list[bool]  # for each line, whether equal text implies equal values
    limits: list[float]  # CPU seconds allowed for each input


def check_code(benchmarks: Sequence[str], allowed: bool) -> None:
    """Raise `UserError` if code benchmarks are requested but not allowed, or if the sandbox does not work."""
    if benchmarks and not allowed:
        raise UserError(
            f"{', '.join(benchmarks)}: grading runs model-written programs on this machine, in a sandbox that "
            "has no privileges and no access to your files or the network (docs/evaluation.md, Code). To allow it, "
            "pass `--allow_code_execution`."
        )
    if benchmarks:
        check_sandbox()


def find_program(text: str, entry_point: str) -> str | None:
    """Return the last fenced Python block that defines the function, else the last Python block."""
    programs = [code for language, code in _BLOCK.findall(text) if language.lower() in _PYTHON]
    defines = re.compile(rf"^(?:async\s+)?(?:def\s+{re.escape(entry_point)}\b|{re.escape(entry_point)}\s*=)", re.M)
    last = programs[-1] if programs else None
    return next((program for program in reversed(programs) if defines.search(program)), last)


class CodeGrader:
    """Grade completions in parallel on all CPU cores; run each reference solution only once."""

    def __init__(self, time_limit: float):
        self.time_limit = time_limit  # wall-clock seconds for all tests of one completion
        self._references: dict[CodeTask, _Reference | None] = {}

    def grade(self, completions: Sequence[tuple[CodeTask, str, bool]]) -> list[CodeGrade]:
        """Grade triples (task, text, whether the prompt opens `<think>`); code in the thinking block is ignored."""
        tasks, programs = [task for task, *_ in completions], []
        for task, text, prefilled in completions:
            final = after_thinking(text, prefilled)
            programs.append(None if final is None else find_program(final, task.entry_point))
        new = list(dict.fromkeys(task for task in tasks if task not in self._references))
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            self._references |= dict(zip(new, threads.map(self._run_reference, new), strict=True))
            passed = list(threads.map(self._test, tasks, programs))
        return [CodeGrade(*pair) for pair in zip(programs, passed, strict=True)]

    def _run_reference(self, task: CodeTask) -> _Reference | None:
        lines = self._solve(task, task.reference, None)
        if len(lines) != len(task.groups) + 1:
            # Outputs exceed the limits (Mbpp/255) or a package is missing. The base inputs may still work.
            return self._run_reference(task.base()) if len(task.groups) > 1 else None
        measurements = json.loads(lines[-1])
        limits = [max(MIN_SECONDS, REFERENCE_FACTOR * seconds) for seconds in measurements["seconds"]]
        return _Reference(lines[:-1], measurements["plain"], limits)

    def _solve(self, task: CodeTask, code: str, limits: list[float] | None) -> list[str]:
        """Return the lines that the program sends. The lines are untrusted and are decoded only in the sandbox."""
        groups = [json.loads(group) for group in task.groups]
        job = {"task": "solve", "code": code, "limits": limits, "groups": groups}
        job |= {"entry_point": task.entry_point, "convert": task.convert}
        payload = json.dumps(job).encode()
        outcome = run_sandboxed(PROGRAM, payload, seconds=self.time_limit, call_seconds=limits or ())
        return outcome.output.replace(MARK, b"").decode("ascii", errors="replace").split("\n")[:-1]

    def _test(self, task: CodeTask, program: str | None) -> list[bool | None]:
        reference = self._references[task]
        if reference is None:
            return [None] * len(task.groups)
        groups = len(reference.outputs)
        tested = task if groups == len(task.groups) else task.base()
        lines = [] if program is None else self._solve(tested, program, reference.limits)
        passed: list[bool | None] = []
        for group in range(groups):
            previous_passed = all(passed) and group < len(lines)
            passed.append(previous_passed and self._equal(task, group, lines[group], reference))
        return passed + [None] * (len(task.groups) - groups)

    def _equal(self, task: CodeTask, group: int, outputs: str, reference: _Reference) -> bool:
        """Return whether a group's outputs are correct; compare them in the sandbox unless equal text suffices."""
        expected = reference.outputs[group]
        if outputs == expected and reference.plain[group]:
            return True
        job = {
            "task": "compare",
            "outputs": outputs,
            "expected": expected,
            "inputs": json.loads(task.groups[group]),
            "accepted": None if task.accepted is None else task.accepted[group],
            "atol": task.atol,
            "rule": task.rule,
        }
        outcome = run_sandboxed(PROGRAM, json.dumps(job).encode(), seconds=self.time_limit)
        return outcome.status == "ok" and outcome.output == b"correct"

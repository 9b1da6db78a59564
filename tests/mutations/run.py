"""
Mutation testing: every small change of a module must make one of its tests fail.

    python tests/mutations/run.py                      # all modules of TESTS, about 40 minutes on one core
    python tests/mutations/run.py methods/ces.py layers/padding.py
    python tests/mutations/run.py --control            # unchanged modules: prints how long the tests take

Prints each surviving mutant that is not in equivalent.toml. Exit code 1 if there is one, or if an entry of that file
matches no mutant any more. A test fails if it takes ten seconds more than three times its time without the mutant.

One process imports torch, TRL and the tests' other imports, in ten seconds, and forks for each mutant, which then
costs about a second; starting pytest anew would cost ten. The fork imports a copy of the package made of hard links,
so grading workers, which are separate processes, run the mutant too. A mutant meets only tests that run its line,
quick ones first.
"""

import argparse
import compileall
import ctypes
import gc
import io
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path

import coverage
import psutil
import pytest
from operators import mutants

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("equivalent.toml")
MEMORY_BYTES = 8 << 30
# By module of trl_ces/, files of tests/. None starts a real worker: test_pool.py has a stand-in for it.
TESTS = {
    "support/limits.py": ("support/test_limits.py",),
    "methods/ces.py": ("methods/test_ces.py", "test_trainer_reference.py", "test_config.py"),
    "methods/entropy_advantage.py": ("methods/test_ces.py", "test_trainer_reference.py", "test_config.py"),
    **{
        f"methods/{file.name}": ("methods/test_length_rewards.py",)
        for file in sorted((ROOT / "trl_ces" / "methods").glob("*.py"))
        if f"def {file.stem}_length_reward(" in file.read_text(encoding="utf-8")
    },
    **{
        f"methods/{name}.py": ("methods/test_covariance.py", "test_trainer_reference.py", "test_config.py")
        for name in ("clip_cov", "covariance", "kl_cov")
    },
    **{
        f"methods/{name}.py": (f"methods/test_{name}.py", "test_trainer_reference.py", "test_config.py")
        for name in ("on_policy_sft", "repo_r", "stare")
    },
    "layers/entropy_control.py": ("layers/test_entropy_control.py", "layers/test_resume.py"),
    "methods/gfpo.py": ("methods/test_gfpo.py",),
    "methods/dler.py": ("methods/test_dler.py",),
    "methods/dot.py": ("methods/test_dot.py",),
    "layers/outlier_truncation.py": ("layers/test_outlier_truncation.py",),
    "methods/qlpo.py": ("methods/test_qlpo.py",),
    "methods/group_reward.py": ("layers/test_group_rewards.py",),
    "layers/reward_calls.py": ("layers/test_group_rewards.py", "test_trainer_seam.py"),
    "layers/reward_guard.py": ("layers/test_reward_errors.py", "layers/test_group_rewards.py"),
    "layers/finite_steps.py": ("layers/test_nonfinite.py", "layers/test_layers.py"),
    "layers/group_filter.py": ("layers/test_group_filter.py", "test_trainer_reference.py"),
    "methods/groups.py": ("methods/test_groups.py", "methods/test_ces.py", "methods/test_length_rewards.py"),
    "layers/padding.py": ("layers/test_padding.py", "layers/test_packed_attention.py"),
    "layers/sampler.py": ("layers/test_sampler.py",),
    "layers/arrangement.py": ("layers/test_arrangement.py",),
    "grading/answers.py": ("grading/test_answers.py",),
    "grading/context.py": ("grading/test_context.py", "grading/test_answers.py"),
    "grading/equality.py": ("grading/test_equality.py",),
    "grading/forms.py": ("grading/test_forms.py", "grading/test_equality.py"),
    "grading/golds.py": ("grading/test_golds.py",),
    "grading/grader.py": ("grading/test_grader.py",),
    "grading/judge.py": ("grading/test_grader.py",),
    "grading/notation.py": ("grading/test_notation.py",),
    "grading/numbers.py": ("grading/test_numbers.py",),
    "grading/pool.py": ("grading/test_pool.py",),
    "grading/statements.py": ("grading/test_statements.py",),
    "grading/symbolic.py": ("grading/test_symbolic.py",),
    "grading/units.py": ("grading/test_units.py",),
    "grading/verdicts.py": ("grading/test_verdicts.py",),
    "grading/worker.py": ("grading/test_worker.py",),
    "grading/qwen/equality.py": ("grading/qwen/test_equality.py",),
    "grading/qwen/extract.py": ("grading/qwen/test_extract.py",),
    "grading/qwen/normalise.py": ("grading/qwen/test_normalise.py",),
    "grading/qwen/symbolic.py": ("grading/qwen/test_symbolic.py",),
}
PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"))
fork = multiprocessing.get_context("fork")


class Recorder:
    """Pytest plugin: records which lines of the package each test runs, and how long it takes."""

    def __init__(self, measured):
        self.measured, self.seconds, self.failed = measured, {}, []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.measured.switch_context(item.nodeid)
        start = time.monotonic()
        result = yield
        self.seconds[item.nodeid] = time.monotonic() - start
        self.measured.switch_context("")
        return result

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(f"{report.nodeid}\n{report.longreprtext[-2000:]}")


class Selector:
    """Pytest plugin: runs the given tests in the given order, each with its limit in seconds."""

    def __init__(self, limits):
        self.limits = limits

    def pytest_collection_modifyitems(self, items):
        found = {item.nodeid: item for item in items}
        items[:] = [found[test] for test in self.limits if test in found]
        for item in items:
            item.add_marker(pytest.mark.timeout(self.limits[item.nodeid]))


def paths(tests):
    return [str(ROOT / "tests" / test) for test in tests]


def load_what_tests_import(files):
    """Imports what the tests import and drops our own modules: the forks share the rest."""
    os.chdir(ROOT)
    with redirect_stdout(io.StringIO()) as said:
        code = pytest.main([*PYTEST, "--collect-only", *files])
    if code != 0:
        sys.exit(said.getvalue())
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        ours = name.partition(".")[0] == "trl_ces" or Path(file).is_relative_to(ROOT / "tests")
        if ours and name != "__main__":
            del sys.modules[name]
    gc.collect()
    gc.freeze()


def enter_package(folder):
    """Makes this process and its children import trl_ces from a folder, and discards their output."""
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(folder)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def record(folder, tests, reply):
    """Runs in a fork: sends exit code, failures, seconds per test, and the tests that run each line."""
    enter_package(folder)
    package = folder / "trl_ces"
    measured = coverage.Coverage(data_file=None, include=[f"{package}/*"], config_file=False)
    recorder = Recorder(measured)
    measured.start()
    code = pytest.main([*PYTEST, *paths(tests)], plugins=[recorder])
    measured.stop()
    data = measured.get_data()
    lines = {module: data.contexts_by_lineno(str(package / module)) for module in TESTS}
    reply.send((int(code), recorder.failed, recorder.seconds, lines))


def try_mutant(folder, limits):
    """Runs in a fork: exits with pytest's code."""
    enter_package(folder)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))  # an endless loop may also fill a list
    files = sorted({str(ROOT / test.partition("::")[0]) for test in limits})
    os._exit(int(pytest.main([*PYTEST, *files], plugins=[Selector(limits)])))


def end_children():
    for child in psutil.Process().children(recursive=True):  # orphans, too: main makes them children of this process
        with suppress(psutil.NoSuchProcess):
            child.kill()
            child.wait()


def exit_code(limit_s, target, *arguments):
    """Exit code of a fork; `None` past the limit. Ends whatever it leaves running."""
    process = fork.Process(target=target, args=arguments)
    process.start()
    process.join(limit_s)
    code = process.exitcode
    end_children()
    process.join()
    return code


def copy_package(folder, module=None, source=None):
    """Copies the package as hard links, with one module's source replaced."""

    def link(original, copy):
        os.link(original, copy) if os.stat(original).st_dev == os.stat(folder).st_dev else shutil.copy2(original, copy)

    shutil.copytree(ROOT / "trl_ces", folder / "trl_ces", copy_function=link)
    if module:
        file = folder / "trl_ces" / module
        file.unlink()
        file.write_text(source)


@cache
def control(tests):
    """What `record` sends for the unchanged package, whose tests must pass."""
    receive, send = fork.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        copy_package(Path(name))
        process = fork.Process(target=record, args=(Path(name), tests, send))
        process.start()
        send.close()
        try:
            code, failed, seconds, lines = receive.recv()
        except EOFError:
            sys.exit(f"The tests ended without a result. Run: python -m pytest {' '.join(paths(tests))}")
        process.join()
        end_children()
    if code != 0:
        sys.exit("\n".join(["Tests fail without any change:", *failed]))
    return seconds, lines


def tests_of(mutant, seconds, lines):
    """The tests for a mutant, quickest first: all of them if its line runs at import or in another process."""
    found = {test for line in range(mutant.first_line, mutant.last_line + 1) for test in lines.get(line, [])}
    chosen = seconds if not found or "" in found else found
    return sorted((test for test in chosen if test in seconds), key=seconds.__getitem__)


def survives(mutant, module, seconds, lines):
    limits = {test: 10 + 3 * seconds[test] for test in tests_of(mutant, seconds, lines)}
    whole_s = 60 + sum(3 * seconds[test] for test in limits)  # if a test cannot be interrupted
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        copy_package(Path(name), module, mutant.source)
        return exit_code(whole_s, try_mutant, Path(name), limits) == 0


def listed(module):
    """A module's entries in equivalent.toml: name -> reason."""
    entries = tomllib.loads(LIST.read_text()).get(module, [])
    return {(entry["in"], entry["before"], entry["after"]): entry["why"] for entry in entries}


def run(module):
    """Tries a module's mutants, prints the survivors, and returns the number of each outcome."""
    found, known = list(mutants((ROOT / "trl_ces" / module).read_text())), listed(module)
    outcomes = Counter(equivalent=sum(mutant.name in known for mutant in found))
    start = time.monotonic()
    seconds, lines = control(TESTS[module])
    for mutant in found:
        if mutant.name in known:
            continue
        if survives(mutant, module, seconds, lines[module]):
            outcomes["survived"] += 1
            where, before, after = mutant.name
            print(f"[['{module}']]\nin = '{where}'\nbefore = '''{before}'''\nafter = '''{after}'''", flush=True)
        else:
            outcomes["killed"] += 1
    print(
        f"{module}: {len(found)} mutants: {outcomes['killed']} killed, "
        f"{outcomes['equivalent']} equivalent, {outcomes['survived']} survived ({time.monotonic() - start:.0f} s)",
        flush=True,
    )
    return outcomes


def stale(modules):
    """Entries of equivalent.toml that match no mutant of the current source."""
    for module in modules:
        names = {mutant.name for mutant in mutants((ROOT / "trl_ces" / module).read_text(), with_source=False)}
        yield from ((module, *name) for name in listed(module) if name not in names)


def main(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("modules", nargs="*", default=list(TESTS))
    parser.add_argument("--control", action="store_true", help="only run the tests on the unchanged modules")
    options = parser.parse_args(arguments)
    if unknown := set(options.modules) - set(TESTS):
        parser.error(f"no tests are listed for {', '.join(unknown)}: choose from {', '.join(TESTS)}")
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: adopts the processes that a killed fork leaves
    compileall.compile_dir(ROOT / "trl_ces", quiet=1)  # once instead of in each fork
    load_what_tests_import(paths(sorted({test for module in options.modules for test in TESTS[module]})))
    if options.control:
        for tests in {TESTS[module]: None for module in options.modules}:
            print(f"{', '.join(tests)}: {sum(control(tests)[0].values()):.0f} s", flush=True)
        return 0
    outcomes = Counter()
    for module in options.modules:
        outcomes += run(module)
    print(f"all: {outcomes['killed']} killed, {outcomes['equivalent']} equivalent, {outcomes['survived']} survived")
    for entry in (old := list(stale(options.modules))):
        print("no such mutant:", *entry, sep="\n  ")
    return 1 if outcomes["survived"] or old else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

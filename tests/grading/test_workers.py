"""Test grading in threads, in DataLoader workers, and while grading workers are killed."""

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from torch.utils.data import DataLoader, Dataset

from trl_ces.grading import WorkerPool, grade, grade_many
from trl_ces.grading.pool import GRACE_S
from trl_ces.grading.worker import CLOCK_GRACE_S
from trl_ces.rewards import accuracy_reward

CORRECT = r"\boxed{\sqrt{8}}", r"2\sqrt{2}"
COSTLY = "9^{9^{9^9}}"
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def correct_answers(count, start=2):
    """Make distinct correct answers that need algebra. Equal answers would be cached."""
    return (
        [rf"\boxed{{\sqrt{{{2 * n * n}}}}}" for n in range(start, start + count)],
        [rf"{n}\sqrt{{2}}" for n in range(start, start + count)],
    )


def child_of(pid):
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


class Killer(threading.Thread):
    """Thread that kills the process grading an answer that contains `text`, at most `times` times."""

    def __init__(self, pool, text, find_victim, times):
        super().__init__(daemon=True)
        self.find_victim, self.kills_left = find_victim, times
        self.busy_workers: list = []
        self.stopped = threading.Event()
        for worker in pool.workers:
            worker.request = self._watch(worker, worker.request, text)

    def _watch(self, worker, request, text):
        def watched_request(message, limit_s):
            if text in message.get("answer", ""):
                self.busy_workers.append(worker)
            return request(message, limit_s)

        return watched_request

    def run(self):
        while self.kills_left and not self.stopped.wait(0.02):
            worker = self.busy_workers[-1] if self.busy_workers else None
            if worker is None or worker.process is None:
                continue
            time.sleep(0.2)  # wait until the request, which takes seconds, is being served
            victim = self.find_victim(worker.process.pid)
            if victim is not None:
                self.busy_workers.clear()
                os.kill(victim, signal.SIGKILL)
                self.kills_left -= 1


@pytest.fixture
def pool():
    pool = WorkerPool(2)
    assert grade_many(*correct_answers(4, start=900), with_qwen=False, pool=pool)[0].correct is True
    yield pool
    pool.close()


@needs_proc
@pytest.mark.parametrize("find_victim", [child_of, lambda pid: pid], ids=["child", "supervisor"])
def test_an_answer_is_graded_again_if_its_worker_is_killed_once(pool, find_victim, caplog):
    killer = Killer(pool, "9999", find_victim, times=1)
    killer.start()
    completions, golds = correct_answers(6)
    completions.insert(3, r"\boxed{x^{9999}+" + COSTLY + "}")
    golds.insert(3, "x")
    grades = grade_many(completions, golds, with_qwen=False, limit_s=1.0, pool=pool)
    killer.stopped.set()
    assert killer.kills_left == 0
    assert [g.correct for g in grades] == [True] * 3 + [False] + [True] * 3  # the second attempt reaches the limit
    assert "died" not in caplog.text


@needs_proc
@pytest.mark.parametrize("find_victim", [child_of, lambda pid: pid], ids=["child", "supervisor"])
def test_an_answer_is_ungraded_if_its_worker_is_killed_twice(pool, find_victim, caplog):
    killer = Killer(pool, "9999", find_victim, times=2)
    killer.start()
    completions, golds = correct_answers(6)
    completions.insert(3, r"\boxed{x^{9999}+" + COSTLY + "}")
    golds.insert(3, "x")
    with caplog.at_level(logging.WARNING, logger="trl_ces.grading"):
        grades = grade_many(completions, golds, with_qwen=False, limit_s=3.0, pool=pool)
    killer.stopped.set()
    assert killer.kills_left == 0
    assert [g.correct for g in grades] == [True] * 3 + [None] + [True] * 3
    warnings = [record.getMessage() for record in caplog.records if "died twice" in record.getMessage()]
    assert len(warnings) == 1
    assert "x^{9999}" in warnings[0]


@pytest.mark.slow
@needs_proc
def test_repeatedly_killing_all_workers_never_makes_an_answer_incorrect(pool, caplog):
    stopped = threading.Event()

    def kill():
        while not stopped.wait(0.4):
            for worker in pool.workers:
                process = worker.process
                victim = child_of(process.pid) if process is not None else None
                if victim is not None:
                    os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with caplog.at_level(logging.WARNING, logger="trl_ces.grading"):
        correctness = [g.correct for g in grade_many(*correct_answers(60), with_qwen=False, pool=pool)]
    stopped.set()
    killer.join()
    ungraded = correctness.count(None)
    assert correctness.count(True) == 60 - ungraded
    assert ungraded <= 3
    assert caplog.text.count("died twice") == ungraded


def test_a_late_request_is_ended_before_its_worker():
    assert CLOCK_GRACE_S < GRACE_S


@needs_proc
def test_a_worker_that_is_killed_while_it_starts_is_restarted(monkeypatch, tmp_path):
    """When memory runs out, the kernel kills processes that allocate memory, such as a starting worker."""
    log = tmp_path / "starts"
    script = tmp_path / "python"
    script.write_text(
        f'#!/bin/sh\necho start >> {log}\n[ $(wc -l < {log}) -eq 1 ] && kill -9 $$\nexec {sys.executable} "$@"\n'
    )
    script.chmod(0o755)
    pool = WorkerPool(1)
    monkeypatch.setattr(sys, "executable", str(script))
    assert grade(*CORRECT, with_qwen=False, pool=pool).correct is True
    assert log.read_text() == "start\nstart\n"
    pool.close()


class RewardDataset(Dataset):
    """Dataset whose rows contain the rewards of a correct and an incorrect answer, and the process id."""

    def __len__(self):
        return 4

    def __getitem__(self, n):
        correct, gold = correct_answers(1, start=n + 2)
        return [*accuracy_reward([*correct, r"\boxed{x+\sqrt{3}}"], gold * 2), float(os.getpid())]


def load_rows(context, num_workers=2):
    loader = DataLoader(
        RewardDataset(), batch_size=None, num_workers=num_workers, multiprocessing_context=context, timeout=120
    )
    return [list(row) for row in loader]


def check_rows(rows):
    assert [row[:2] for row in rows] == [[1.0, 0.0]] * 4
    assert os.getpid() not in {int(row[2]) for row in rows}


@pytest.mark.slow
def test_rewards_work_in_forked_loader_workers_while_the_trainer_grades():
    stopped = threading.Event()
    reward_values = []

    def keep_grading():
        number = 1000
        while not stopped.is_set():
            completions, golds = correct_answers(4, start=number)
            reward_values.extend(accuracy_reward(completions, golds))
            number += 4

    thread = threading.Thread(target=keep_grading)
    thread.start()
    try:
        check_rows(load_rows("fork"))
    finally:
        stopped.set()
        thread.join()
    assert reward_values == [1.0] * len(reward_values)
    assert accuracy_reward(*([part] for part in CORRECT)) == [1.0]


def test_rewards_work_in_spawned_loader_workers():
    check_rows(load_rows("spawn", num_workers=1))


def test_rewards_work_in_a_second_thread_and_keep_signal_handlers():
    handlers = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGCHLD)}
    reward_values = []
    thread = threading.Thread(target=lambda: reward_values.append(accuracy_reward(*correct_answers(3))))
    thread.start()
    thread.join()
    assert reward_values == [[1.0] * 3]
    assert {number: signal.getsignal(number) for number in handlers} == handlers

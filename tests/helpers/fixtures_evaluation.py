"""Problems written for this project in each benchmark's row format, and a small chat model to ask them."""

import gzip
import json
import os
import string
from pathlib import Path

import torch
from tiny import tiny_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from trl_ces.lab.evaluation.benchmarks import BENCHMARKS
from trl_ces.lab.evaluation.generate import GeneratedCompletion

# The real files, where this machine has them; they are not part of the repository.
REAL_DATA = Path(os.environ.get("TRL_CES_DATA") or Path(__file__).parents[3] / "shared" / "data")

TABLE = "Fruit | Pieces\nApples | 3\nPears | 12"
ROWS = {
    "aime24": [
        {"id": 1, "problem": "Find $2+3$.", "answer": "005"},
        {"id": 2, "problem": "Find $4+4$.", "answer": "8"},
    ],
    "amc23": [
        {"id": 0, "question": "What is $6/4$?", "answer": 1.5},
        {"id": 1, "question": "Half of 14?", "answer": 7.0},
    ],
    "cmath": [{"grade": 1, "question": "3加4等于多少？", "answer": "7"}],
    "cn_middle_school": [
        {"idx": 0, "question": "最大的数是()\nA.1 B.2 C.3 D.0", "answer": "3", "choice_answer": "C"},
        {"idx": 1, "question": "2+2=?", "answer": "4", "choice_answer": ""},
    ],
    "college_math": [
        {"question": "Solve $x+1=3$.", "answer": "$x=2$"},
        {"question": "Is 7 prime?", "answer": "Yes."},
    ],
    "gaokao_math_cloze": [{"question": "若 $x+1=3$, 则 $x=$, $2x=$", "answer": "$2$;$4$", "options": None}],
    "gaokao2023en": [{"question": "Compute $5^2$.", "lang": "en", "answer": "$25$"}],
    "gsm8k": [{"question": "Ann has 2 pens and buys 3. How many?", "answer": "2 + 3 = <<2+3=5>>5\n#### 5", "idx": 0}],
    "minerva_math": [
        {"problem": "Double $\\frac{3}{4}$.", "solution": "$\\boxed{1}$, no: $\\boxed{\\frac{3}{2}}$", "idx": 0}
    ],
    "olympiadbench": [{"id": 1, "question": "Find all $k$ with $k^2=4$.", "final_answer": ["$k=2,-2$"]}],
    "svamp": [
        {"Body": "Tom had 9 nuts and ate 2", "Question": "How many are left?", "Answer": 7.0},
        {"Body": "Eva ran 1.5 km twice.", "Question": "How far did she run?", "Answer": 3.0},
    ],
    "tabmwp": [
        {"question": "How many pears?", "choices": None, "answer": "12", "table": TABLE, "table_title": "Our fruit"},
        {
            "question": "Which are fewer?",
            "choices": ["apples", "pears"],
            "answer": "apples",
            "table": TABLE,
            "table_title": None,
        },
        {
            "question": "Are there plums?",
            "choices": ["yes", "no"],
            "answer": "no",
            "table": TABLE,
            "table_title": None,
        },
    ],
    "arc_challenge": [
        {
            "instruction": "Please choose the correct answer to the question: What do plants need to grow?\n\n"
            "Answer1: plastic Answer2: light Answer3: noise\n\nAnswer format: answer1/answer2/answer3",
            "input": "",
            "output": "the correct answer is answer2",
            "answer": "answer2",
        }
    ],
    "commonsenseqa": [
        {
            "answerKey": "B",
            "id": "x1",
            "question": {
                "stem": "Where is bread baked?",
                "question_concept": "bread",
                "choices": [{"label": "A", "text": "river"}, {"label": "B", "text": "oven"}],
            },
        }
    ],
    "openbookqa": [
        {
            "instruction": "Please choose the correct answer to the question: Ice that is warmed\n\n"
            "Answer1: melts Answer2: burns Answer3: sings Answer4: rusts\n\n"
            "Answer format: answer1/answer2/answer3/answer4",
            "input": "",
            "output": "the correct answer is answer1",
            "answer": "answer1",
        }
    ],
}
CODE_ROWS = {
    "humaneval": {
        "task_id": "HumanEval/0",
        "prompt": 'def double(x: int) -> int:\n    """ Twice x. """\n',
        "entry_point": "double",
        "canonical_solution": "    return 2 * x\n",
        "base_input": [[1], [2]],
        "plus_input": [[-3], [10**20]],
        "atol": 0,
    },
    "mbpp": {
        "task_id": "Mbpp/1",
        "prompt": '"""\nWrite a function to halve a number.\nassert halve(3) == 1.5\n"""\n',
        "entry_point": "halve",
        "canonical_solution": "def halve(x):\n    return x / 2\n",
        "base_input": [[3], [4]],
        "plus_input": [[-1]],
        "atol": 0,
    },
}
ROWS |= {name: [CODE_ROWS[BENCHMARKS[name].dataset]] for name in BENCHMARKS if BENCHMARKS[name].kind == "code"}


def rows_of(name):
    """As many rows as the set must have: the few of this file again and again, without a gold where it has none."""
    benchmark = BENCHMARKS[name]
    rows = [dict(ROWS[name][number % len(ROWS[name])]) for number in range(benchmark.count)]
    for number in benchmark.without_gold:
        rows[number]["answer"] = ""
    return rows


def write_data(folder, names=tuple(BENCHMARKS)):
    """The layout of `--data_dir`."""
    for name in names:
        file = folder / BENCHMARKS[name].file
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = rows_of(name)
        if file.suffix == ".json":
            file.write_text(json.dumps(rows), encoding="utf-8")
        elif file.suffix == ".gz":
            file.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
        else:
            file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return folder


def write_model(folder, context=1024, seed=0, **tokenizer):
    """A saved chat model of random weights that has room for the paper's prompt."""
    made = tiny_tokenizer(**{"characters": string.printable, **tokenizer})
    torch.manual_seed(seed)
    # A Llama: for a Qwen2, AutoTokenizer takes a class of its own in place of the tokenizer that was saved.
    config = LlamaConfig(
        vocab_size=len(made),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=context,
        tie_word_embeddings=False,
        initializer_range=0.5,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    made.save_pretrained(folder)
    return folder


class Scripted:
    """A backend that writes the first of `texts` whose key occurs in the question, and records the seeds."""

    batch_size = 4

    def __init__(self, tokenizer, texts):
        self.tokenizer, self.texts, self.seeds, self.closed = tokenizer, texts, [], False

    def generate(self, prompts, seeds):
        self.seeds.append(list(seeds))
        found = []
        for index, prompt in enumerate(prompts):
            question = self.tokenizer.decode(prompt)
            text = next(text for part, text in self.texts.items() if part in question)
            found.append(GeneratedCompletion(index, self.tokenizer(text)["input_ids"], "stop"))
        yield found[:1]
        yield found[1:]

    def close(self):
        self.closed = True

"""HTML page of `trl-ces inspect`: token shaping, escaping, and comparison of two models."""

import math
from html.parser import HTMLParser
from types import SimpleNamespace

from bigram import ENTROPY_OF_A, TRANSITIONS, bigram_model
from tiny import tiny_tokenizer

from trl_ces.cli.main import main
from trl_ces.lab.inspect import html
from trl_ces.lab.inspect.sampling import RecipeSample, SampledCompletion
from trl_ces.lab.inspect.tokens import HighEntropyToken

SETTINGS = {"tau": 0.5, "beta_correct": 0.4, "beta_incorrect": 0.2, "cap_incorrect": None, "cap_correct": None}
SETTINGS["dynamic_multiplier"] = True
RECIPE = SimpleNamespace(setting=lambda name: SETTINGS.get(name.removeprefix("ces_"), False))
EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
TEXTS = ["ab", EVIL, " ", "\n"]
TOKENIZER = SimpleNamespace(
    convert_ids_to_tokens=lambda token: TEXTS[token], decode=lambda ids, **options: TEXTS[ids[0]]
)


def sample(rows, prompts=("q",), reason=None):
    """Make a sample from one row per completion: (correct, entropies in bits, ended)."""
    completions = []
    for number, (_, bits, ended) in enumerate(rows):
        tokens = [position % 4 for position in range(len(bits))]
        top = [
            HighEntropyToken(position, (0, 1), (0.7, 0.2), value, tokens[position])
            for position, value in enumerate(bits)
        ]
        completions.append(SampledCompletion(number * len(prompts) // len(rows), tokens, ended, list(bits), top))
    return RecipeSample(f"model {EVIL}", TOKENIZER, list(prompts), completions, [row[0] for row in rows], reason)


def shaping(rows, mask_truncated=False, **changes):
    """Map the positions of shaped tokens to A' - A, for each completion."""
    rows = html.token_shaping(sample(rows), SETTINGS | changes, mask_truncated).tolist()
    return [{position: round(change, 4) for position, change in enumerate(row) if change} for row in rows]


def test_token_shaping_follows_algorithm_1():
    bits = [0.1, 0.9, 0.3, 0.2], [0.5, 0.1, 0.8, 0.7], [0.6, 0.4, 0.2, 0.9], [1.0] * 4
    rows = [(correct, row_bits, True) for correct, row_bits in zip((True, False, False, None), bits, strict=True)]
    # a = 1/3. Correct: b = 1/3, k = floor(4/2 * 1/3) = 0. Incorrect: b = 2/3, k = floor(4/2 * 2/3) = 1.
    assert shaping(rows) == [{}, {2: 0.16}, {3: 0.18}, {}]
    lowered, raised = {1: -0.36, 2: -0.12}, [{2: 0.16, 3: 0.14}, {0: 0.12, 3: 0.18}]
    assert shaping(rows, dynamic_multiplier=False) == [lowered, *raised, {}]
    # If beta is 0, no token is shaped.
    assert shaping(rows, dynamic_multiplier=False, beta_correct=0.0) == [{}, *raised, {}]
    assert shaping(rows, dynamic_multiplier=False, beta_incorrect=0.0) == [lowered, {}, {}, {}]
    # If one of two completions is correct, A = -sqrt(1/2) and the cap |A| / 2 is below 0.2 x 4 bits. If both are
    # incorrect, A = 0.
    cap_settings = {"cap_incorrect": 2.0, "dynamic_multiplier": False}
    rows = [(False, [4.0, 0.9], True), (True, [0.0, 0.0], True)]
    assert shaping(rows, **cap_settings)[0] == {0: round(math.sqrt(1 / 2) / 2, 4)}
    assert shaping([rows[0]] * 2, **cap_settings) == [{}, {}]
    # The same applies to correct completions: 0.4 x 4 bits exceed A / 2 = sqrt(1/2) / 2.
    cap_settings = {"cap_correct": 2.0, "dynamic_multiplier": False}
    rows = [(True, [4.0, 0.3], True), (False, [0.0, 0.0], True)]
    assert shaping(rows, **cap_settings)[0] == {0: -round(math.sqrt(1 / 2) / 2, 4)}
    assert shaping([rows[0]] * 2, **cap_settings) == [{}, {}]
    assert shaping([(False, [4.0, 0.9], False)], mask_truncated=True) == [{}]


def test_page_shows_the_most_shaped_completions_of_each_prompt(monkeypatch):
    monkeypatch.setattr(html, "MAX_TOKENS", 3)
    rows = [(False, [0.0] * 4, True), (False, [0.0, 0.6, 0.3, 1.2], False), (True, [3.0] * 4, True)]
    two_prompts = sample([*rows, (True, [0.1], True), *[(None, [0.2], True)] * 4], prompts=["first", "second"])
    view = html.model_view(two_prompts, html.token_shaping(two_prompts, SETTINGS))
    first, second = view["completions"]
    # The first prompt has a = 1/2 and k = floor(4/2 * 1/2) = 1.
    assert [(completion["title"], completion["facts"], completion["hidden"]) for completion in first] == [
        ("Correct", "4 tokens, 1 shaped", 1),
        ("Incorrect", "4 tokens, 1 shaped, truncated", 1),
    ]
    assert [completion["title"] for completion in second] == ["Unscored"]
    assert [token["level"] for token in first[1]["tokens"]] == [0, 3, 2]
    assert view["facts"].startswith("50.0 % correct, 2.1 tokens per completion, ")


class Page(HTMLParser):
    """Parser that collects the text, the tags and their attributes."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def tooltips(self, tag):
        return [attributes["title"] for name, attributes in self.tags if name == tag and "title" in attributes]


def test_all_text_is_escaped_and_the_page_loads_no_resources():
    rows = sample([(False, [0.2, 2.5, 0.0, 0.0], True)], prompts=[EVIL], reason=EVIL)
    page = Page(html.render_page(RECIPE, [rows], 0.25))
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "img", "iframe", "object", "a"})
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert [attributes["href"] for tag, attributes in page.tags if tag == "link"] == ["data:,"]
    policy = next(attributes["content"] for _, attributes in page.tags if "http-equiv" in attributes)
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    # The page title, model name, note and prompt contain EVIL. In shaped tokens, spaces become a visible character.
    assert page.text.count(EVIL) == 4
    assert page.text.count(EVIL.replace(" ", "␣")) == 1
    assert page.tooltips("span") == ["0.20 bits", "0.00 bits", "0.00 bits"]
    assert page.tooltips("mark") == [f"2.50 bits between “ab” 70 % and “{EVIL}” 20 %; advantage +0.50"]
    assert ("mark", {"class": "e5 raised", "title": page.tooltips("mark")[0]}) in page.tags


def test_two_models_are_shown_side_by_side_on_the_same_prompts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    reward = "def y_is_correct(completions, **_):\n    return [float('y' in c[0]['content']) for c in completions]"
    (tmp_path / "html_test_rewards.py").write_text(reward)
    (tmp_path / "data.jsonl").write_text("".join(f'{{"question": "{n}+{n}=", "answer": "1"}}\n' for n in range(3)))
    for name, transitions in (("base", TRANSITIONS), ("trained", TRANSITIONS | {"a": {"x": 0.03125, "y": 0.96875}})):
        bigram_model(transitions).save_pretrained(tmp_path / name)
        tiny_tokenizer().save_pretrained(tmp_path / name)
    args = ["inspect", "--model", "base", "--data", "data.jsonl", "--reward_funcs", "html_test_rewards.y_is_correct"]
    args += ["--system_prompt", "null", "--tau", "1", "--max_new_tokens", "8", "--compare", "trained"]
    assert main(args) == 2
    assert "pass `--html FILE`" in capsys.readouterr().err
    assert main([*args, "--html", "new/page.html"]) == 0
    assert "Completions: new/page.html" in capsys.readouterr().out
    page = Page((tmp_path / "new" / "page.html").read_text(encoding="utf-8"))
    assert page.text.count("Prompt ") == 3
    assert min(page.text.count("· base"), page.text.count("· trained")) >= 3
    trained_entropy = -(math.log2(0.96875) * 0.96875 + math.log2(0.03125) * 0.03125)
    assert {tooltip[:4] for tooltip in page.tooltips("mark")} - {"0.00"} == {
        f"{ENTROPY_OF_A:.2f}",
        f"{trained_entropy:.2f}",
    }

"""Make a character tokenizer, a Qwen2 model with about ten thousand weights, and scripted rollouts."""

import re
import string

import torch
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

PAD, EOS = "<pad>", "<eos>"
CHARACTERS = string.ascii_lowercase + string.digits + " +=[]<>/\n\\{}.A"
# Render a conversation as bracketed messages, such as "[uquestion][a".
CHAT_TEMPLATE = (
    "{% for m in messages %}[{{ m['role'][0] }}{{ m['content'] }}]{% endfor %}"
    "{% if add_generation_prompt %}[a{% endif %}"
)


def tiny_tokenizer(chat_template=CHAT_TEMPLATE, characters=CHARACTERS, markers=(), **special_tokens):
    """Make a tokenizer. Each of `markers` is a single token; `markers` must contain the values of `special_tokens`."""
    tokens = [PAD, EOS, *sorted(set(characters)), *markers]
    tokenizer = Tokenizer(WordLevel({token: index for index, token in enumerate(tokens)}, unk_token=PAD))
    single_tokens = "|".join(re.escape(token) for token in (PAD, EOS, *markers))
    tokenizer.pre_tokenizer = Split(Regex(rf"{single_tokens}|[\s\S]"), behavior="isolated")
    tokenizer.decoder = Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        padding_side="left",
        chat_template=chat_template,
        **{"pad_token": PAD, "eos_token": EOS, **special_tokens},
    )


def tiny_model(seed=0, vocabulary=None, spread=0.5):
    """Make a model with random weights. With the default `spread`, entropies differ clearly between tokens."""
    vocabulary = vocabulary or len(tiny_tokenizer())
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=vocabulary,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=256,
            tie_word_embeddings=False,
            initializer_range=spread,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
    )


def save_tiny(folder, **changes):
    """Save the tiny model and its tokenizer in `folder`."""
    tiny_model(**changes).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)


# Use the same padded tensors as TRL in the forward pass, because padding affects rounding.
AS_TRL = {"trim_padding": False, "arrange_by_length": False}


def settings(output_dir, **changes):
    """Return keyword arguments for `GRPOConfig` that make a run fast on one CPU."""
    return {
        "output_dir": str(output_dir),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "max_completion_length": 12,
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "seed": 7,
        **changes,
    }


def scripted_rollout(script, group_size):
    """
    Make a `rollout_func` that returns `script[p][g]` as the g-th completion of prompt `p`.

    An entry is a dict with completion_ids, accuracy and bonus (for the rewards), and optionally mask (the `env_mask`).
    """

    def rollout(prompts, trainer):
        rank, count = trainer.accelerator.process_index, len(prompts)
        rows = [script[prompt][(rank * count + index) % group_size] for index, prompt in enumerate(prompts)]
        encode = trainer.processing_class.encode
        output = {
            "prompt_ids": [encode(prompt) for prompt in prompts],
            "completion_ids": [list(row["completion_ids"]) for row in rows],
            "logprobs": None,
            "accuracy": [row["accuracy"] for row in rows],
            "bonus": [row["bonus"] for row in rows],
        }
        if "mask" in rows[0]:
            output["env_mask"] = [list(row["mask"]) for row in rows]
        return output

    return rollout


def scripted_accuracy_reward(accuracy, **kwargs):
    return accuracy


def scripted_bonus_reward(bonus, **kwargs):
    return bonus


def random_script(prompts, accuracies, generator, lengths=(9, 30), vocabulary=None, masked=False, truncated=()):
    """Draw one completion per accuracy. Completions end with <eos>, except those whose index is in `truncated`."""
    vocabulary = vocabulary or len(tiny_tokenizer())
    script, number = {}, 0
    for prompt, group in zip(prompts, accuracies, strict=True):
        script[prompt] = []
        for accuracy in group:
            length = int(torch.randint(*lengths, (1,), generator=generator))
            ids = torch.randint(2, vocabulary, (length,), generator=generator).tolist()
            if number not in truncated:
                ids[-1] = 1
            row = {
                "completion_ids": ids,
                "accuracy": accuracy,
                "bonus": float(torch.randint(0, 2, (1,), generator=generator)),
            }
            if masked:
                row["mask"] = [int(value) for value in torch.rand(length, generator=generator) < 0.7]
                row["mask"][0] = 1
            script[prompt].append(row)
            number += 1
    return script

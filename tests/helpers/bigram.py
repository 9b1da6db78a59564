"""Bigram model: the next token depends only on the previous token, so the exact statistics are known."""

import math

import torch
from tiny import tiny_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

PAD, EOS = 0, 1
# After "a", the model chooses between "x", which ends immediately, and "y", which continues for two tokens.
TRANSITIONS = {"a": {"x": 0.75, "y": 0.25}, "x": {"<eos>": 1.0}, "y": {"z": 1.0}, "z": {"w": 1.0}, "w": {"<eos>": 1.0}}
ENTROPY_OF_A = 2 - 0.75 * math.log2(3)  # -3/4 log2(3/4) - 1/4 log2(1/4) = 0.8113 bits


def token_of(character):
    return tiny_tokenizer().convert_tokens_to_ids(character)


def bigram_model(transitions=TRANSITIONS):
    """Build a Llama model with the transition probabilities in `transitions`; <eos> follows all other tokens."""
    size = len(tiny_tokenizer())
    table = torch.full((size, size), -60.0)
    table[:, EOS] = 0.0
    for before, after in transitions.items():
        table[token_of(before)] = -60.0
        for character, probability in after.items():
            table[token_of(before), token_of(character)] = math.log(probability)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=size,
        intermediate_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=4,
        rms_norm_eps=1e-12,
        tie_word_embeddings=False,
        max_position_embeddings=64,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.model.layers.parameters():
            parameter.zero_()  # the layer adds nothing to the embedding
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        model.model.norm.weight.fill_(size**-0.5)  # the norm scales each one-hot vector to length sqrt(size)
        model.lm_head.weight.copy_(table.T)
    return model

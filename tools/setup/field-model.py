"""Makes a small random Llama for `make bench-prefixes` and `make bench-resuming` in a folder, without any download: weights, tokenizer, chat template and LoRA adapters.

The tokenizer is a byte-level BPE, by which each word of the study is one token. The model writes words only, so that its responses have the same tokens
in the prompts that repeat them.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

# A word has a consonant, a vowel and a consonant; with the blank before it, it is four bytes. The study draws the same words.
CONSONANTS, VOWELS = "bdfgklmnprstvwxz", "aeio"
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
END = "<end>"
# Between them vLLM looks for reasoning. The model writes none, so the reasoning of a request that asks for it has no end.
THINKING = ["<think>", "</think>"]

HIDDEN, LAYERS, HEADS, KV_HEADS = 256, 4, 4, 2
HEAD = HIDDEN // HEADS
MAX_TOKENS = 4096
ADAPTERS, RANK = 3, 8


def write_tokenizer(folder):
    """Writes the tokenizer, and returns the ids of the words and the number of all tokens."""
    words = [first + vowel + last for first in CONSONANTS for vowel in VOWELS for last in CONSONANTS]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=4096, special_tokens=[END, *THINKING], initial_alphabet=alphabet, show_progress=False)
    roles = "system:\nuser:\nassistant:\n" * len(words)
    tokenizer.train_from_iterator([roles, " " + " ".join(words)], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END, model_max_length=MAX_TOKENS)
    tokens = [fast.encode(" " + word) for word in words]
    if any(len(word) != 1 for word in tokens):
        raise SystemExit("some words are more than one token")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return [token for [token] in tokens], len(fast)


def write_model(folder, words, tokens):
    """Writes random weights, by which the tokens of words are more probable than all others."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=tokens, hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, head_dim=HEAD, max_position_embeddings=MAX_TOKENS, eos_token_id=0, pad_token_id=0,
        bos_token_id=None, tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    is_word = torch.zeros(tokens, 1)
    is_word[words] = 1
    with torch.no_grad():
        # Of a thousand random logits of words some are above 0.
        model.lm_head.weight.mul_(is_word)
    model.save_pretrained(folder)


def write_adapter(folder, seed):
    """Writes random LoRA weights of the projections of queries and values, as peft does."""
    folder.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(LAYERS):
        for projection, out in (("q_proj", HEADS * HEAD), ("v_proj", KV_HEADS * HEAD)):
            name = f"base_model.model.model.layers.{layer}.self_attn.{projection}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(RANK, HIDDEN, generator=generator) * 0.05
            tensors[f"{name}.lora_B.weight"] = torch.randn(out, RANK, generator=generator) * 0.05
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 2 * RANK, "lora_dropout": 0.0, "bias": "none"}
    config |= {"target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": "random", "inference_mode": True}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


def main():
    """Writes all of it."""
    folder = pathlib.Path(sys.argv[1])
    words, tokens = write_tokenizer(folder)
    write_model(folder, words, tokens)
    for number in range(1, ADAPTERS + 1):
        write_adapter(folder / f"adapter-{number}", number)


main()

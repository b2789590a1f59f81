"""Makes a tokenizer of 4 096 words in a folder, without any download: one word is one token for the clients of `make bench-field`, and for their servers."""

import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CONSONANTS, VOWELS = "bdfgklmnprstvwxz", "aeio"
END = "<end>"


def words():
    """4 096 words of two syllables."""
    syllables = [consonant + vowel for consonant in CONSONANTS for vowel in VOWELS]
    return [first + second for first in syllables for second in syllables]


def main():
    """Writes the tokenizer."""
    vocabulary = {word: number for number, word in enumerate([END, *words()])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=END))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, unk_token=END, pad_token=END, model_max_length=1_000_000)
    fast.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    fast.save_pretrained(sys.argv[1])


main()

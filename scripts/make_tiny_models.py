"""Makes the tiny models of the test suite in models/tiny: seeded, the same bytes each time.

python scripts/make_tiny_models.py            writes them and prints their hashes for models/registry.toml
python scripts/make_tiny_models.py --check    makes them in a temporary folder and compares
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

TARGET = Path(__file__).resolve().parents[1] / "models" / "tiny"

# What the tokenizers learn their pieces from: the words of the tests and of the product's own subject.
TEXT = """
The agent keeps what it learned in a memory of facts, episodes and skills.
A fact is a short text with its source. An episode is the record of one task:
each step, what was seen and what was done.
A skill is a method that several successful episodes have in common, written as short steps.
When a step fails, the memory is repaired: a missing fact is added, a misleading one is cut,
a coarse one is spelled out.
The spreadsheet viewer opens small tables and refuses a file with too many rows.
Python reads a large CSV file, groups the rows by country and gives the average of a column.
Which country has the highest average of medals per athlete? The total is not the average.
Paris is the capital of France. Berlin is the capital of Germany. Rome is the capital of Italy. Madrid is in Spain.
The cat sat on the mat. A kitten slept in the sun. The dog ran after the ball in the garden.
Water boils at one hundred degrees. Bread is made of flour, water, salt and yeast. Tea is made with hot water.
To restart the server, stop the service, wait ten seconds and start it again. Then read the log file for errors.
The network was down and the request timed out. The tool said: error, file not found. The answer was wrong.
The user asked a question and the assistant gave a short answer. The note says which tool to use for which file.
Ada likes green tea in the morning. Ben lives in London and works as a nurse. Clara moved to Lisbon last year.
Yes, this is right. No, that is not true. Maybe it is. First do this, then do that. One, two, three, four, five, six.
Give a JSON object with score, action, details, targets, granularity: expand, prune, reshape, none, fine, coarse.
0 1 2 3 4 5 6 7 8 9 10 12 25 100 0.5 { } [ ] " ' : , . ; ! ? ( ) < > / \\ + - = * & % $ # @ _ | ~ `
"""

LLM_VOCABULARY = 640
EMBEDDER_SIZE = 64
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n", "utf-8")


def make_llm(folder: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        TEXT.splitlines(),
        trainers.BpeTrainer(
            vocab_size=LLM_VOCABULARY,
            special_tokens=CONTROL,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": CONTROL[0],
            "eos_token": CONTROL[2],
            "pad_token": CONTROL[0],
            "model_max_length": 2048,
            "chat_template": CHAT,
            "clean_up_tokenization_spaces": False,
        },
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=0,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).float()
    teach(model, tokenizer)
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    # Rounded: the last bits of a training depend on the machine's order of additions, these do not.
    save_file(
        {name: tensor.to(torch.bfloat16) for name, tensor in weights.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    write_json(folder / "config.json", {**config.to_dict(), "architectures": ["LlamaForCausalLM"], "dtype": "bfloat16"})
    write_json(folder / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0})


def teach(model: LlamaForCausalLM, tokenizer: Tokenizer) -> None:
    """Let the model read the text a few times, so that it prefers words to noise and ends its sentences."""
    torch.set_num_threads(1)
    rows = [[*tokenizer.encode(line).ids, 2] for line in TEXT.strip().splitlines()[:-2]]
    longest = max(len(row) for row in rows)
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    labels = ids.masked_fill(ids == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(120):
        optimizer.zero_grad()
        model(input_ids=ids, attention_mask=(ids != 0).long(), labels=labels).loss.backward()
        optimizer.step()


def make_embedder(folder: Path) -> None:
    # Counted here, not by the library's trainer, which breaks ties in another order each time.
    normalizer, splitter = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    words = Counter(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(TEXT)))
    letters = sorted({*"abcdefghijklmnopqrstuvwxyz0123456789", *"".join(words)})
    pieces = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters if letter.isalnum())]
    pieces += [f"##{ending}" for ending in ("s", "es", "ed", "ing", "er", "ly", "ion") if len(ending) > 1]
    pieces += sorted(word for word in words if len(word) > 1)
    tokenizer = Tokenizer(
        models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token=SPECIAL[1])
    )
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "[UNK]",
            "sep_token": "[SEP]",
            "pad_token": "[PAD]",
            "cls_token": "[CLS]",
            "model_max_length": 64,
        },
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=EMBEDDER_SIZE,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=66,
        type_vocab_size=1,
    )
    model = BertModel(config).float()
    with torch.no_grad():
        # A bag of words: a random direction a piece, hardly any position, attention and feed-forward almost off.
        embeddings = model.embeddings
        embeddings.word_embeddings.weight.normal_(0, 1)
        # Marks and full stops stand in every text and would make all texts alike.
        quiet = [
            0,
            2,
            3,
            *(number for piece, number in tokenizer.get_vocab().items() if not piece.strip("#").isalnum()),
        ]
        embeddings.word_embeddings.weight[quiet] *= 0.02
        embeddings.position_embeddings.weight.normal_(0, 0.02)
        embeddings.token_type_embeddings.weight.zero_()
        for layer in model.encoder.layer:
            layer.attention.output.dense.weight.mul_(0.05)
            layer.output.dense.weight.mul_(0.05)
    save_file(
        {name: tensor.to(torch.float16).contiguous() for name, tensor in model.state_dict().items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    write_json(folder / "config.json", {**config.to_dict(), "architectures": ["BertModel"], "dtype": "float16"})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": False})
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    write_json(
        folder / "modules.json",
        [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(kinds.items())
        ],
    )
    write_json(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": EMBEDDER_SIZE, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False},
    )


def hashes(folder: Path) -> dict[str, str]:
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with what is there, change nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) if options.check else TARGET
        make_llm(target / "llm")
        make_embedder(target / "embedder")
        made = hashes(target)
        if options.check:
            different = [name for name, value in made.items() if hashes(TARGET).get(name) != value]
            print("\n".join(f"differs: {name}" for name in different) or "the same")
            return 1 if different else 0
    for kind in ("llm", "embedder"):
        print(f"\n[models.tiny-{kind}.files]")
        for name, value in made.items():
            if name.startswith(f"{kind}/"):
                print(f'"{name.removeprefix(f"{kind}/")}" = "{value}"')
    return 0


if __name__ == "__main__":
    sys.exit(main())

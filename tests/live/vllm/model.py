"""Build a tiny chat model that has memorized some conversations: ``python model.py DIALOGUES.json FOLDER``.

It runs with the Python of the environment that ``build.py`` creates, on a CPU, without downloads, in a minute or two.
The architecture is Qwen2's with about a million parameters; the template writes tool calls as Hermes does. It does not
generalize: replies to other prompts are random. Each long instruction never changes and is one token, so prompts of ten
thousand characters have a few hundred tokens.
"""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast, Qwen2Config

TEMPLATE = """\
{%- set rules = messages[0].content if messages[0].role == "system" else "" -%}
<|im_start|>system
{{ rules }}
{%- for tool in tools or [] %}
{{ tool.function.name }}
{%- endfor %}<|im_end|>
{% for message in messages if message.role != "system" -%}
<|im_start|>{{ message.role }}
{{ message.content or "" }}
{%- for call in message.tool_calls or [] -%}
{%- set given = call.function.arguments -%}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ given if given is string else given | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
CONTEXT = 4096
STEPS = 160
RATE = 3e-3

Dialogue = dict[str, Any]
Row = tuple[list[int], int]


def tokenizer(dialogues: list[Dialogue]) -> Any:
    """Train a byte-level tokenizer on the conversations, and add a token for each instruction."""
    rules = list(dict.fromkeys(dialogue["messages"][0]["content"] for dialogue in dialogues))
    texts = [json.dumps([dialogue["messages"][1:], dialogue["reply"]], ensure_ascii=False) for dialogue in dialogues]
    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs.decoder = decoders.ByteLevel()
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    pairs.train_from_iterator(
        texts * 3,
        trainers.BpeTrainer(vocab_size=1000, special_tokens=marks, initial_alphabet=alphabet, show_progress=False),
    )
    # Added, but not special: the parser of tool calls must see them in the text.
    pairs.add_tokens(["<tool_call>", "</tool_call>", *rules])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=pairs, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=CONTEXT
    )
    fast.chat_template = TEMPLATE
    return fast


def rows_of(dialogues: list[Dialogue], words: Any) -> list[Row]:
    """Return the tokens of each dialogue, and how many of them are the prompt."""
    rows = []
    for dialogue in dialogues:
        for message in dialogue["messages"]:
            for call in message.get("tool_calls") or ():
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])  # as vLLM does
        template = {"tools": dialogue["tools"], "tokenize": False}
        prompt = words.apply_chat_template(dialogue["messages"], add_generation_prompt=True, **template)
        text = words.apply_chat_template([*dialogue["messages"], dialogue["reply"]], **template).rstrip("\n")
        assert text.startswith(prompt), "the template writes a reply as it asks for one"
        prompt_tokens = words(prompt)["input_ids"]
        rows.append((prompt_tokens + words(text.removeprefix(prompt))["input_ids"], len(prompt_tokens)))
    return [row for index, row in enumerate(rows) if row not in rows[:index]]


def learn(model: Any, rows: list[Row]) -> float:
    """Fit the weights to the replies with a decreasing learning rate; return the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, betas=(0.9, 0.98))
    loss = torch.tensor(9.0)
    for step in range(STEPS):
        batch = random.sample(rows, min(8, len(rows)))
        longest = max(len(tokens) for tokens, _ in batch)
        tokens = torch.zeros(len(batch), longest, dtype=torch.long)
        labels, mask = torch.full_like(tokens, -100), torch.zeros_like(tokens)
        for index, (row, prompt) in enumerate(batch):
            tokens[index, : len(row)] = torch.tensor(row)
            labels[index, prompt : len(row)] = torch.tensor(row[prompt:])
            mask[index, : len(row)] = 1
        loss = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min((step + 1) / 30, 0.5 + 0.5 * math.cos(math.pi * step / STEPS))
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    return float(loss.item())


def memorized(model: Any, rows: list[Row], end: int) -> int:
    """Count the replies that the model generates exactly."""
    model.eval()
    right = 0
    for row, prompt in rows:
        generated = model.generate(
            input_ids=torch.tensor([row[:prompt]]),
            attention_mask=torch.ones(1, prompt, dtype=torch.long),
            max_new_tokens=len(row) - prompt,
            do_sample=False,
            eos_token_id=end,
            pad_token_id=0,
        )
        right += generated[0].tolist() == row
    return right


def main(source: Path, folder: Path) -> None:
    """Build the model; exit with an error if it has not memorized every reply."""
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # several threads slow each other down on a busy machine
    dialogues = json.loads(source.read_text(encoding="utf-8"))
    trained_tokenizer = tokenizer(dialogues)
    config = Qwen2Config(
        vocab_size=len(trained_tokenizer) + -len(trained_tokenizer) % 64,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        initializer_range=0.05,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=trained_tokenizer.eos_token_id,
        pad_token_id=trained_tokenizer.pad_token_id,
    )
    config.save_pretrained(folder)
    trained_tokenizer.save_pretrained(folder)
    words = AutoTokenizer.from_pretrained(folder)  # loaded as vLLM loads it: another class, which splits differently
    rows = rows_of(dialogues, words)
    print(f"{len(rows)} replies; prompts of up to {max(prompt for _, prompt in rows)} tokens", flush=True)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    loss = learn(model, rows)
    right = memorized(model, rows, words.eos_token_id)
    print(f"loss {loss:.4f}; {right} of {len(rows)} replies are memorized")
    if right < len(rows):
        sys.exit("the model has not memorized all replies; raise STEPS")
    model.generation_config = GenerationConfig(
        eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id, do_sample=False
    )
    model.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

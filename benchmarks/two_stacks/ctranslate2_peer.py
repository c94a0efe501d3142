"""CTranslate2's seconds for the same prompts and answers, in its int8.

    PEERS/bin/python benchmarks/two_stacks/ctranslate2_peer.py FOLDER --prompts 32 512 \
        --outputs 16 128 --batches 1 16 [--rounds N] [--clock wall|cpu] [--threads N]

FOLDER is the random encoder-decoder that benchmarks.encoder_decoder wrote. Run with an environment
that has ctranslate2, transformers and torch, and nothing of this project: it imports nothing here.
"""

import argparse
import json
import time
from pathlib import Path

import ctranslate2  # type: ignore[import-not-found]
import transformers

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def converted(folder: Path) -> Path:
    """Returns the folder of CTranslate2's own format, which is written unless it is there."""
    made = folder.with_name(f"{folder.name}-ctranslate2")
    if not made.exists():
        converter = ctranslate2.converters.TransformersConverter(str(folder))
        converter.convert(str(made), quantization="int8")
        _name_tokens(made / "config.json")
    return made


def _name_tokens(path: Path) -> None:
    """Names the special tokens that the random tokenizer leaves open."""
    config = json.loads(path.read_text())
    names = {"bos_token": "<|special_0|>", "eos_token": "<|special_1|>"}
    names["unk_token"] = names["bos_token"]
    config |= {name: config.get(name) or value for name, value in names.items()}
    path.write_text(json.dumps(config))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prompts", nargs="+", type=int, default=[32, 512])
    parser.add_argument("--outputs", nargs="+", type=int, default=[16, 128])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    now = CLOCKS[arguments.clock]
    model = ctranslate2.Translator(
        str(converted(arguments.folder)), compute_type="int8", intra_threads=arguments.threads
    )
    names = transformers.AutoTokenizer.from_pretrained(arguments.folder).convert_ids_to_tokens(
        list(range(2, 258))
    )
    print(f"CTranslate2 {ctranslate2.__version__}, {arguments.threads} threads, int8")
    for batch in arguments.batches:
        for prompt in arguments.prompts:
            texts = [[names[(31 * i + 7 * j) % 256] for i in range(prompt)] for j in range(batch)]
            for output in (1, *arguments.outputs):
                least = float("inf")
                for _ in range(arguments.rounds):
                    start = now()
                    model.translate_batch(
                        texts,
                        beam_size=1,
                        max_decoding_length=output,
                        min_decoding_length=output,
                        max_input_length=0,
                    )
                    least = min(least, now() - start)
                row = {"batch": batch, "prompt_tokens": prompt, "output_tokens": output}
                print(json.dumps(row | {"seconds": round(least, 4)}), flush=True)


if __name__ == "__main__":
    main()

"""GPTQModel's part of test_gptqmodel.py, in its own environment: python FILE read|write ...

read FOLDER OUT       Transformers loads the folder; OUT gets its quantized layers' weights
write FOLDER OUT KIND the model in FOLDER quantized: gptq, gptq-act-order or awq
"""

import sys

import torch
from gptqmodel import BACKEND, GPTQModel, QuantizeConfig
from gptqmodel.quantization import FORMAT, METHOD
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AwqConfig, GPTQConfig

BITS = 4
WINDOWS, WINDOW, NUM_IDS = 16, 64, 100


def read(folder: str, out: str) -> None:
    """Each layer is asked for the rows of the identity: products with 1 and sums with 0 are exact.
    The plain kernels are asked for; others are compiled on the spot, for minutes."""
    section = AutoConfig.from_pretrained(folder).quantization_config
    plain = (
        AwqConfig(bits=BITS, backend="torch_awq")
        if section["quant_method"] == "awq"
        else GPTQConfig(bits=BITS, backend="torch")
    )
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float16, quantization_config=plain
    )
    weights = {}
    for name, module in model.named_modules():
        if type(module).__module__.startswith("gptqmodel"):
            identity = torch.eye(module.in_features, dtype=torch.float16)
            with torch.no_grad():
                weights[name] = module(identity).T.contiguous()
    save_file(weights, out)


def write(folder: str, out: str, kind: str) -> None:
    options = {"bits": BITS, "group_size": 32, "device": "cpu"}
    configs = {
        "gptq": QuantizeConfig(**options, desc_act=False),
        "gptq-act-order": QuantizeConfig(**options, desc_act=True),
        "awq": QuantizeConfig(**options, sym=False, method=METHOD.AWQ, format=FORMAT.GEMM),
    }
    model = GPTQModel.load(folder, configs[kind], backend=BACKEND.TORCH)
    draw = torch.Generator().manual_seed(0)
    windows = [torch.randint(NUM_IDS, (WINDOW,), generator=draw).tolist() for _ in range(WINDOWS)]
    model.quantize(
        [{"input_ids": ids, "attention_mask": [1] * WINDOW} for ids in windows], batch_size=1
    )
    model.save(out)


if __name__ == "__main__":
    {"read": read, "write": write}[sys.argv[1]](*sys.argv[2:])

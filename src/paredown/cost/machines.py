"""Well-known machines from datasheets, with dense peaks (without sparsity).

We measured none of these; `paredown doctor` measures the machine it runs on. A processor's peak is
cores x clock x operations of a core per cycle, at the clock that its maker promises for all cores.
Caches are not included.
"""

from dataclasses import replace

from paredown.cost.roofline import Roofs
from paredown.errors import ConfigError
from paredown.units import GIGA, TERA

THIS = "this"
_NVIDIA = "https://www.nvidia.com/en-us/data-center"
_A100 = f"{_NVIDIA}/a100/"
_AMD = "https://www.amd.com/en/products/processors/server/epyc"
_INTEL = "https://www.intel.com/content/www/us/en/products/sku"


def _gpu(
    name: str, gigabytes: int, bandwidth: float, tera: tuple[float, ...], source: str
) -> Roofs:
    return replace(_roofs(name, gigabytes, bandwidth, tera, source), activation_bytes=2)


def _roofs(
    name: str, gigabytes: int, bandwidth: float, tera: tuple[float, ...], source: str
) -> Roofs:
    """Builds roofs from `bandwidth` in GB/s and `tera`: 10^12 operations per second in int8, bf16
    and fp32."""
    int8, bf16, fp32 = (one * TERA for one in tera)
    return Roofs(
        name=name,
        memory_bytes=gigabytes * GIGA,
        bandwidth_bytes_per_s=bandwidth * GIGA,
        int8_ops_per_s=int8,
        bf16_flops_per_s=bf16,
        fp32_flops_per_s=fp32,
        source=source,
    )


def _cpu(
    name: str,
    gigabytes: int,
    bandwidth: float,
    cycles: tuple[int, float],
    per_cycle: tuple[int, int, int],
    source: str,
) -> Roofs:
    """Builds a processor's roofs. `cycles` are cores and GHz; `per_cycle` are operations of a core
    per cycle in int8, bf16 and fp32, where a multiply-add counts as two."""
    cores, clock = cycles
    tera = tuple(cores * clock * one / 1000 for one in per_cycle)
    return _roofs(name, gigabytes, bandwidth, tera, source)


# Operations of one core per cycle. Golden Cove: one AMX unit (16 x 16 x 64 bytes in 16 cycles), two
# 512-bit multiply-adders. Zen 4: two of 256 bits, with four (int8) or two (bf16) products in a
# lane; Zen 5: two of 512. Neoverse V1, V2: 4 x 128 bits, with small matrix products (i8mm, bf16).
_GOLDEN_COVE = (2048, 1024, 64)
_ZEN_4 = (128, 64, 32)
_ZEN_5 = (256, 128, 64)
_NEOVERSE_V = (256, 128, 32)

MACHINES: dict[str, Roofs] = {
    "a100-40gb": _gpu("NVIDIA A100 SXM 40 GB", 40, 1555, (624, 312, 19.5), _A100),
    "a100": _gpu("NVIDIA A100 SXM 80 GB", 80, 2039, (624, 312, 19.5), _A100),
    "h100": _gpu("NVIDIA H100 SXM 80 GB", 80, 3350, (1979, 989.4, 66.9), f"{_NVIDIA}/h100/"),
    "h100-pcie": _gpu("NVIDIA H100 PCIe 80 GB", 80, 2000, (1513, 756, 51), f"{_NVIDIA}/h100/"),
    "h200": _gpu("NVIDIA H200 SXM 141 GB", 141, 4800, (1979, 989.4, 66.9), f"{_NVIDIA}/h200/"),
    "b200": _gpu("NVIDIA B200 180 GB", 180, 8000, (4500, 2250, 75), f"{_NVIDIA}/dgx-b200/"),
    "l4": _gpu("NVIDIA L4 24 GB", 24, 300, (242.5, 121, 30.3), f"{_NVIDIA}/l4/"),
    "l40s": _gpu("NVIDIA L40S 48 GB", 48, 864, (733, 362.05, 91.6), f"{_NVIDIA}/l40s/"),
    "epyc-genoa": _cpu(
        "AMD EPYC 9654 (Genoa), 96 cores, 12 x DDR5-4800",
        768,
        460.8,
        (96, 3.55),
        _ZEN_4,
        f"{_AMD}/4th-generation-9004-and-8004-series/amd-epyc-9654.html",
    ),
    "epyc-turin": _cpu(
        "AMD EPYC 9755 (Turin), 128 cores, 12 x DDR5-6000",
        768,
        576,
        (128, 2.7),
        _ZEN_5,
        f"{_AMD}/9005-series/amd-epyc-9755.html",
    ),
    "xeon-spr": _cpu(
        "Intel Xeon Platinum 8480+ (Sapphire Rapids), 56 cores, 8 x DDR5-4800",
        512,
        307.2,
        (56, 2.0),
        _GOLDEN_COVE,
        f"{_INTEL}/231746/specifications.html",
    ),
    "xeon-emr": _cpu(
        "Intel Xeon Platinum 8592+ (Emerald Rapids), 64 cores, 8 x DDR5-5600",
        512,
        358.4,
        (64, 1.9),
        _GOLDEN_COVE,
        f"{_INTEL}/237261/specifications.html",
    ),
    "graviton3": _cpu(
        "AWS Graviton3, 64 Neoverse V1 cores, 8 x DDR5-4800",
        128,
        307.2,
        (64, 2.6),
        _NEOVERSE_V,
        "https://en.wikichip.org/wiki/AWS_Graviton3",
    ),
    "graviton4": _cpu(
        "AWS Graviton4, 96 Neoverse V2 cores, 12 x DDR5-5600",
        768,
        537.6,
        (96, 2.8),
        _NEOVERSE_V,
        "https://chipsandcheese.com/p/arms-neoverse-v2-in-awss-graviton-4",
    ),
}


def find_machine(name: str) -> Roofs:
    """Returns the roofs of a machine in the table. Raises ConfigError that lists the known
    names."""
    found = MACHINES.get(name.strip().lower())
    if found is None:
        raise ConfigError(
            "there is no such machine in the table",
            seen=name,
            remedy=f"Use {THIS!r} (measured by `paredown doctor`) or one of {', '.join(MACHINES)}.",
        )
    return found

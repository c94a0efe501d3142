"""Settings and files that llama.cpp is tried with, so that the fastest are measured."""

from dataclasses import dataclass

from benchmarks.encoders.cases import EncoderKind

# The targets of `paredown convert` by kind; "gguf" keeps floats as they are.
TARGETS: dict[EncoderKind, tuple[str, ...]] = {
    "int8": ("gguf-q8_0",),
    "bf16": ("gguf-bf16", "gguf-f16"),
    "fp32": ("gguf",),
}
# Floats are not repacked.
REPACKS: dict[EncoderKind, tuple[bool, ...]] = {
    "int8": (True, False),
    "bf16": (False,),
    "fp32": (False,),
}
# Tokens of a call: the memory of a call's attention grows with their square.
CALL_TOKENS = 2048
CALL_TEXTS = (1, 4, 16, 32)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A file, and how a context runs it."""

    target: str
    repack: bool
    flash_attention: bool


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Settings, and how many texts go through one call."""

    settings: Settings
    call_texts: int

    @property
    def name(self) -> str:
        one = self.settings
        repack = "repacked" if one.repack else "as in the file"
        attention = f"flash attention {'on' if one.flash_attention else 'off'}"
        return f"{one.target} {repack}, {attention}, {self.call_texts} texts a call"


def settings_of(kind: EncoderKind) -> list[Settings]:
    """Returns every file of a kind with every way to run it."""
    return [
        Settings(target=target, repack=repack, flash_attention=flash_attention)
        for target in TARGETS[kind]
        for repack in REPACKS[kind]
        for flash_attention in (True, False)
    ]


def call_texts_of(num_texts: int, longest: int) -> list[int]:
    """Returns the numbers of texts a call that are tried for so many texts, the longest of which
    has `longest` tokens."""
    most = max(1, min(num_texts, CALL_TOKENS // longest))
    return sorted({min(one, most) for one in CALL_TEXTS})

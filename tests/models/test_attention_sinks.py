"""The decoder with attention sinks against the paper's words, and what of sinks is refused."""

import numpy as np
import pytest
import torch

from fakes.random_executor import TINY
from fakes.specs import changed
from paredown.errors import ConfigError, UnsupportedError
from paredown.models.decoder.layer import Layer
from paredown.spec.attention_sinks import MAX_SINK_TOKENS, AttentionSinks
from paredown.spec.context import Context
from paredown.spec.model import LearnedPositions, ModelSpec
from paredown.spec.rotary import Rotary
from references.sinks import attend_with_sinks, cached_positions

SPECS = {
    "llama": TINY,
    "qwen3": changed(TINY, qk_norm=True, head_dim=32),
    "llama3": changed(TINY, positions=Rotary(theta=500.0, scaling="llama3", factor=8.0)),
}


def test_the_cache_is_the_papers() -> None:
    sinks = AttentionSinks(num_sink_tokens=4, window=4)
    # Figure 4 of the paper: tokens 0 to 3 stay, then the last ones.
    assert cached_positions(8, sinks) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert cached_positions(6, sinks) == [0, 1, 2, 3, 4, 5, 6]
    assert cached_positions(1, sinks) == [0, 1]


@pytest.mark.parametrize("sizes", [(1, 1), (3, 7), (4, 20), (20, 5), (5, 100)])
@pytest.mark.parametrize("name", SPECS)
def test_a_layer_does_what_the_paper_says(name: str, sizes: tuple[int, int]) -> None:
    sinks = AttentionSinks(num_sink_tokens=sizes[0], window=sizes[1])
    spec = SPECS[name]
    torch.manual_seed(3)
    layer = Layer(spec, 0, sinks).double()
    x_BTD = torch.randn(1, 45, spec.hidden_size, dtype=torch.float64)
    table, mask_TT = layer.positions(45)
    assert table is not None
    heads = {role: layer.heads(role, x_BTD) for role in "qkv"}
    if layer.spec.norms.q is not None:
        heads |= {"q": layer.q_norm(heads["q"]), "k": layer.k_norm(heads["k"])}
    q, k, v = (heads[role][0].detach().numpy() for role in "qkv")
    attention = layer.spec.attention
    assert attention.rotary is not None
    frequencies = np.array(attention.rotary.inverse_frequencies(attention.head_dim))
    mixed_HTC = torch.from_numpy(attend_with_sinks(q, k, v, frequencies, sinks))
    expected = layer.apply_linear("o", mixed_HTC.transpose(0, 1).flatten(1))
    found = layer.attention(x_BTD, (table[0].double(), table[1].double()), mask_TT)[0]
    # Frequencies and tables are float32.
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


def test_what_fits_in_the_cache_is_as_without_sinks() -> None:
    sinks = AttentionSinks(num_sink_tokens=4, window=20)
    torch.manual_seed(3)
    layers = [Layer(TINY, 0), Layer(TINY, 0, sinks)]
    layers[1].load_state_dict(layers[0].state_dict())
    x_BTD = torch.randn(1, 30, TINY.hidden_size)
    found = [layer.attention(x_BTD, *layer.positions(30))[0].detach() for layer in layers]
    torch.testing.assert_close(found[0][:24], found[1][:24], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found[0][24], found[1][24], rtol=1e-3)


@pytest.mark.parametrize(
    ("spec", "sinks", "error", "words"),
    [
        (changed(TINY, positions=LearnedPositions()), (4, 20), UnsupportedError, ["rotary"]),
        (TINY, (4, 253), ConfigError, ["4 + 253", "256", "252"]),
        (changed(TINY, sliding_window=64), (4, 61), ConfigError, ["4 + 61", "60"]),
    ],
)
def test_a_model_that_cannot_have_them_is_refused(
    spec: ModelSpec, sinks: tuple[int, int], error: type[Exception], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        Context(spec=spec, sinks=AttentionSinks(num_sink_tokens=sinks[0], window=sinks[1]))
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("num_sink_tokens", "window"), [(0, 20), (-1, 20), (MAX_SINK_TOKENS + 1, 20), (4, 0), (4, -5)]
)
def test_senseless_sizes_are_refused(num_sink_tokens: int, window: int) -> None:
    with pytest.raises(ConfigError):
        AttentionSinks(num_sink_tokens=num_sink_tokens, window=window)


def test_sinks_take_the_place_of_the_models_own_windows() -> None:
    spec = changed(TINY, sliding_window=64, full_layers=(1,))
    plain = Context(spec=spec)
    assert [plain.layer_window(layer) for layer in range(2)] == [64, None]
    assert plain.kept_window is None
    assert plain.costed_spec is spec
    sinking = Context(spec=spec, sinks=AttentionSinks(num_sink_tokens=4, window=60))
    assert [sinking.layer_window(layer) for layer in range(2)] == [60, 60]
    assert sinking.kept_window == 60
    assert sinking.costed_spec.windows == (64,)

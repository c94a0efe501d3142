"""Head: shapes and sizes of what follows the last layer."""

from paredown.spec.head import Head, HeadStep
from paredown.spec.norm import Norm

NORM = Norm(kind="layer", eps=1e-5)
MEAN = Head(kind="embedding", pooling=("mean",), is_normalized=True)
# A classifier as BERT's: a dense layer with tanh on the first token, then a number for each label.
CLASSIFIER = Head(
    kind="classification",
    pooling=("cls",),
    steps=(HeadStep(size=32, activation="tanh"), HeadStep(size=3)),
)
SPLADE = Head(
    kind="sparse",
    token_steps=(
        HeadStep(size=32, activation="gelu", norm=NORM),
        HeadStep(size=100, is_tied=True),
    ),
    pooling=("max_log_relu",),
)


def test_a_head_without_steps_has_the_hidden_size() -> None:
    assert MEAN.output_size(32) == 32
    assert MEAN.num_parameters(32) == 0


def test_several_poolings_lie_one_after_the_other() -> None:
    head = Head(kind="embedding", pooling=("cls", "max", "mean"), steps=(HeadStep(size=8),))
    assert head.step_shapes(32) == {"head.0": (8, 96)}
    assert head.output_size(32) == 8
    assert Head(kind="embedding", pooling=("cls", "max")).output_size(32) == 64


def test_a_classifier_counts_weights_and_biases() -> None:
    assert CLASSIFIER.step_shapes(32) == {"head.0": (32, 32), "head.1": (3, 32)}
    assert CLASSIFIER.vector_sizes() == {"head.0.bias": 32, "head.1.bias": 3}
    assert CLASSIFIER.num_parameters(32) == 32 * 32 + 32 + 3 * 32 + 3
    assert CLASSIFIER.output_size(32) == 3


def test_a_tied_step_is_not_counted_twice() -> None:
    assert SPLADE.step_shapes(32) == {"head.token.0": (32, 32), "head.token.1": (100, 32)}
    assert SPLADE.num_parameters(32) == 32 * 32 + 32 + 2 * 32 + 100
    assert SPLADE.output_size(32) == 100


def test_a_head_without_pooling_keeps_every_token() -> None:
    head = Head(kind="token_vectors", token_steps=(HeadStep(size=16, has_bias=False),))
    assert head.output_size(32) == 16
    assert head.vector_sizes() == {}

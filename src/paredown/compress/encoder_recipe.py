"""Refuses the steps of a recipe that an encoder cannot have, since it predicts no tokens and keeps
none, and those that only an encoder can have."""

from collections.abc import Sequence

from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.method import Cut
from paredown.compress.recipe import Recipe
from paredown.compress.steps import EMBEDDING, LAYERS, PruneStep, TrainStep
from paredown.errors import UnsupportedError
from paredown.models.check_tensors import head_modules
from paredown.models.checkpoint import Checkpoint
from paredown.spec.model import ModelSpec


def check_encoder_recipe(source: Checkpoint, recipe: Recipe) -> None:
    """Raises UnsupportedError for a step that needs a model that predicts tokens, if `source` does
    not, and for one that needs vectors of texts, if it does."""
    if source.spec.generates:
        if any(step.min_cosine is not None for step in recipe.prune_steps):
            raise _unsupported(
                "this limit is measured on vectors of texts, which this model does not make",
                recipe,
                "Give the KL divergence that is allowed (max_kl), or the predicted loss "
                "(max_loss).",
            )
        return
    if recipe.output is not None:
        _check_head(source, recipe)
    if recipe.kv_cache is not None:
        raise _unsupported(
            "an encoder keeps no keys and values", recipe, "Leave -kv- out of the recipe."
        )
    for step in recipe.prune_steps:
        _check_pruning(step, recipe)
        if step.min_cosine is not None and source.spec.gives_scores:
            raise _unsupported(
                "this encoder gives one number for a text, and the cosine of two is 1 or -1",
                recipe,
                "Give a share, and read in the proof how far ranks agree, or give the predicted "
                "loss (max_loss).",
            )
    if recipe.train_step is not None:
        _check_training(recipe.train_step, recipe)


def check_encoder_cuts(spec: ModelSpec, cuts: Sequence[Cut]) -> None:
    """Raises UnsupportedError for a cut that looks at predicted tokens, if the model makes none."""
    for cut in cuts:
        if not spec.generates and isinstance(cut, CutNeurons) and cut.score == "taylor":
            raise UnsupportedError(
                "these scores follow the gradients of predicted tokens, which an encoder has not",
                seen=f"score {cut.score}",
                remedy="Choose neurons by what is lost without them (score: obs).",
            )


def _check_head(source: Checkpoint, recipe: Recipe) -> None:
    """Raises UnsupportedError for a head without a weight of its own in the main files, and for one
    that is to be trained."""
    rest = f"The layers ({LAYERS}) and the table of embeddings (-{EMBEDDING}-) can be quantized."
    head = source.spec.head
    if head is None or not head.steps_by_role():
        raise _unsupported(
            "the head of this encoder has no linear layer", recipe, f"Leave -head- out. {rest}"
        )
    if source.own_head:
        raise _unsupported(
            "the head lies in files of its own (a Dense module), which every program reads as "
            "floats",
            recipe,
            f"Leave -head- out. {rest}",
        )
    if not any(head_modules(source.spec, source.names)):
        raise _unsupported(
            "the head is the table of embeddings",
            recipe,
            f"Leave -head- out and quantize the table (-{EMBEDDING}-int8).",
        )
    if recipe.train_step is not None:
        raise _unsupported(
            "the codes of a head are not trained", recipe, "Leave -head- out of the recipe."
        )


def _check_pruning(step: PruneStep, recipe: Recipe) -> None:
    if step.pruner.needs_gradients:
        raise _unsupported(
            "this method follows the gradients of predicted tokens, which an encoder has not",
            recipe,
            "Prune by what layers read: wanda, sparsegpt or obs, or by magnitude.",
        )
    if step.max_kl is not None or step.budget == "sensitivity":
        raise _unsupported(
            "this budget is measured in predictions, which an encoder does not make",
            recipe,
            "Give a share for all layers, one threshold for the model (budget: global), the "
            "predicted loss (max_loss), or the least cosine (min_cosine).",
        )


def _check_training(step: TrainStep, recipe: Recipe) -> None:
    if step.method in ("qat", "llm_qat"):
        raise _unsupported(
            "this training needs texts that the model predicts or writes",
            recipe,
            "Train codes for the original's vectors (qad), or the scales alone.",
        )


def _unsupported(what: str, recipe: Recipe, remedy: str) -> UnsupportedError:
    return UnsupportedError(what, seen=f"recipe {recipe.name}", remedy=remedy)

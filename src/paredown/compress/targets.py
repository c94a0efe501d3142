"""The linear modules of a checkpoint, and the words by which a recipe's targets name them."""

from collections.abc import Sequence
from dataclasses import dataclass

from paredown.compress.steps import EMBEDDING, LAYERS, OUTPUT
from paredown.errors import ConfigError, UnsupportedError
from paredown.formats.module_pattern import PatternError, UnreadPatternError, module_pattern
from paredown.models.check_tensors import head_modules
from paredown.models.checkpoint import Checkpoint
from paredown.spec.experts import expert_index, role_kind, split_role

REGEX = "re:"


@dataclass(frozen=True, kw_only=True)
class LinearModule:
    name: str
    roles: tuple[str, ...]
    layer: int | None
    shape: tuple[int, int]
    transposed: bool

    @property
    def is_head(self) -> bool:
        """Whether it is a step of an encoder's head: "head.0", "head.token.0"."""
        return self.roles[0].startswith(f"{OUTPUT}.")

    @property
    def titles(self) -> tuple[str, ...]:
        """The words by which a target may name the module."""
        return tuple(title for role in self.roles for title in self.titles_of(role))

    def titles_of(self, role: str) -> tuple[str, ...]:
        """Returns the words by which a target may name one of its roles: "experts.5.gate" is also
        in "experts.gate", "gate" and "experts"."""
        if self.layer is None:
            return (role, OUTPUT) if self.is_head else (role,)
        owner, own = split_role(role)
        group = owner.split(".")[0]
        return tuple(title for title in (role, role_kind(role), own, group) if title)


def linear_modules(source: Checkpoint) -> list[LinearModule]:
    """Returns every linear module, those of an encoder's layers first, with the steps of a head,
    the output layer, if there is one, and the embedding last."""
    modules = [] if source.spec.encoder is None else _layer_modules(source.encoder)
    modules += _layer_modules(source)
    modules += [
        LinearModule(name=one.name, roles=one.roles, layer=None, shape=one.shape, transposed=False)
        for one in head_modules(source.spec, source.names)
    ]
    shape = (source.spec.vocab_size, source.spec.hidden_size)
    tables = [(source.names.output, OUTPUT)] if source.spec.generates else []
    tables.append((source.names.embedding, EMBEDDING))
    modules += [
        LinearModule(name=name, roles=(role,), layer=None, shape=shape, transposed=False)
        for name, role in tables
    ]
    return modules


def _layer_modules(source: Checkpoint) -> list[LinearModule]:
    modules = list[LinearModule]()
    for layer in range(source.spec.num_layers):
        shapes = source.spec.linear_shapes(layer)
        modules += [
            LinearModule(
                name=name,
                roles=roles,
                layer=layer,
                shape=(sum(shapes[role][0] for role in roles), shapes[roles[0]][1]),
                transposed=source.names.source(roles[0]).transposed,
            )
            for name, roles in source.names.modules(shapes, layer).items()
        ]
    return modules


class Targets:
    """Finds the modules that targets name."""

    def __init__(self, modules: Sequence[LinearModule]) -> None:
        self._modules = modules
        self._by_title: dict[str, list[str]] = {}
        for module in modules:
            for title in dict.fromkeys((*module.titles, module.name)):
                self._by_title.setdefault(title, []).append(module.name)

    def matching(self, targets: Sequence[str]) -> list[str]:
        """Returns the names of the modules. Raises ConfigError for a target that matches nothing,
        UnsupportedError for targets that name only some of the roles in one module."""
        names: list[str] = []
        for target in targets:
            if target == LAYERS:
                found = [module.name for module in self._modules if module.layer is not None]
            elif target.startswith(REGEX):
                found = _matching_expression(target, self._modules)
            else:
                found = self._by_title.get(target, [])
            if not found:
                raise self._unmatched(target)
            names += found
        self._check_whole(targets)
        return names

    def _unmatched(self, target: str) -> ConfigError:
        known = (title for module in self._modules for title in module.titles)
        roles = dict.fromkeys(title for title in known if expert_index(title) is None)
        return ConfigError(
            "a target of the recipe matches no linear layer",
            seen=target,
            remedy=f"Targets are {LAYERS}, a role ({', '.join(roles)}), the whole name of a module "
            f"({self._modules[0].name}) or {REGEX} and an expression that matches one.",
        )

    def _check_whole(self, targets: Sequence[str]) -> None:
        for module in self._modules:
            if len(module.roles) == 1 or any(
                target in (LAYERS, module.name) or target.startswith(REGEX) for target in targets
            ):
                continue
            named = [
                role
                for role in module.roles
                if any(target in module.titles_of(role) for target in targets)
            ]
            if named and len(named) < len(module.roles):
                raise UnsupportedError(
                    f"{', '.join(module.roles)} are one module here, which has one format",
                    seen=f"{', '.join(named)} of {module.name}",
                    remedy=f"Name all of them as targets ({', '.join(module.roles)}), or none.",
                )


def _matching_expression(target: str, modules: Sequence[LinearModule]) -> list[str]:
    try:
        expression = module_pattern(target.removeprefix(REGEX), "fullmatch")
    except UnreadPatternError as error:
        raise UnsupportedError(
            "a target is a regular expression that is not read here",
            seen=error,
            remedy="RE2's syntax, and lookaheads at the beginning: https://github.com/google/re2/"
            "wiki/Syntax.",
        ) from error
    except PatternError as error:
        raise ConfigError(
            "a target is not a regular expression",
            seen=error,
            remedy="RE2's syntax, much as Python's; a dot stands for any character.",
        ) from error
    return [module.name for module in modules if expression.matches(module.name)]

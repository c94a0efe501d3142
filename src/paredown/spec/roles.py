"""The roles of a layer's linear layers, and which roles belong together."""

from collections.abc import Collection, Mapping

QKV_ROLES = ("q", "k", "v")
MLP_ROLES = ("gate", "up", "down")
# Those of a decoder layer's attention to the tokens of an encoder.
CROSS_ROLES = ("cross_q", "cross_k", "cross_v", "cross_o")
# Linear layers that read the same input and whose rows the native core keeps in one weight.
ROW_GROUPS: Mapping[str, tuple[str, ...]] = {
    "qkv": QKV_ROLES,
    "o": ("o",),
    "cross_q": ("cross_q",),
    "cross_kv": ("cross_k", "cross_v"),
    "cross_o": ("cross_o",),
    "up": ("gate", "up"),
    "down": ("down",),
}


def row_groups(roles: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Returns the groups of a layer with these linear layers. An expert's group is named after its
    owner: "experts.5.up" is ("experts.5.gate", "experts.5.up")."""
    owners = dict.fromkeys(role.rpartition(".")[0] for role in roles)
    groups = {}
    for owner in owners:
        prefix = f"{owner}." if owner else ""
        for group, members in ROW_GROUPS.items():
            found = tuple(prefix + role for role in members if prefix + role in roles)
            if found:
                groups[prefix + group] = found
    return groups

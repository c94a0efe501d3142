"""BatchConfig: how the texts of many callers are put together."""

from dataclasses import dataclass, fields

from paredown.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """`max_batch_tokens`   tokens that are encoded at once; a longer text is a batch by itself
    `max_waiting_tokens`  tokens of all requests that wait or are encoded
    `max_waiting_texts`   the same in texts, whose vectors are kept until a request is answered
    """

    max_batch_tokens: int = 2048
    max_waiting_tokens: int = 2**20
    max_waiting_texts: int = 2**14

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(
                    f"{field.name} must be a positive integer", seen=value, remedy="Use 1 or more."
                )

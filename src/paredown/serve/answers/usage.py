"""Usage: the tokens that an answer took, as each API tells them."""

from dataclasses import dataclass

Body = dict[str, object]


@dataclass(slots=True)
class Usage:
    """`num_prompt_tokens` counts each prompt once, however many choices it has.
    `num_reasoning_tokens` are among those generated."""

    num_prompt_tokens: int
    num_generated_tokens: int = 0
    num_reasoning_tokens: int = 0

    def body(self) -> Body:
        """Returns the counts as completions and chats have them."""
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": self.num_generated_tokens,
            "total_tokens": self.num_prompt_tokens + self.num_generated_tokens,
            "completion_tokens_details": {"reasoning_tokens": self.num_reasoning_tokens},
        }

    def response_body(self) -> Body:
        """Returns the counts as a response has them."""
        return {
            "input_tokens": self.num_prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": self.num_generated_tokens,
            "output_tokens_details": {"reasoning_tokens": self.num_reasoning_tokens},
            "total_tokens": self.num_prompt_tokens + self.num_generated_tokens,
        }

    def message_body(self) -> Body:
        """Returns the counts as a message has them."""
        return {
            "input_tokens": self.num_prompt_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": self.num_generated_tokens,
        }

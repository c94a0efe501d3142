"""The chat template of encoder-decoders whose files have none.

T5 and FLAN-T5 answer one instruction: a conversation has no form that they were trained on. What
the system says and the last message of the user become the text of /v1/completions, with the same
tokens around it. Turns before it are not read.
"""

import json
from collections.abc import Mapping, Sequence

_TEMPLATE = """\
{%- if messages[-1].role != "user" -%}
{{- raise_exception("this model answers the user's last message, so the user must speak last") -}}
{%- endif -%}
{{- BEFORE -}}
{%- for message in messages if message.role in ("system", "developer") -%}
{{- message.content ~ "\\n\\n" -}}
{%- endfor -%}
{{- messages[-1].content ~ AFTER -}}
"""


def instruction_template(before: Sequence[str | None], after: Sequence[str | None]) -> str:
    """Returns the template as Jinja. `before` and `after` are the tokens that the tokenizer puts
    around every text, as its vocabulary writes them."""
    texts = ("".join(token or "" for token in tokens) for tokens in (before, after))
    # JSON writes a text as Jinja reads it, but escapes characters beyond 16 bits in halves.
    begin, end = (json.dumps(text, ensure_ascii=False) for text in texts)
    return _TEMPLATE.replace("BEFORE", begin).replace("AFTER", end)


def is_encoder_decoder(config: Mapping[str, object]) -> bool:
    """Returns what config.json says of the model."""
    return config.get("is_encoder_decoder") is True

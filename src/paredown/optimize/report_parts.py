"""The parts of the report that depend on the kind of model: what is lost, and what is timed."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class KindParts:
    """Jinja of the chosen candidate's figures, of the table's head and rows, and of the paragraphs
    about quality and speed."""

    figures: str
    table: str
    quality: str
    speed: str


DECODER = KindParts(
    figures="""
<div><b>{{ "%+.2f" | format(loss(chosen)) }} %</b><span>perplexity,
{{ number(chosen.perplexity, 3) }} from {{ number(original.perplexity, 3) }}</span></div>
<div><b>{{ number(chosen.decode_tokens_per_s, 0) }}</b><span>tokens/s decoding, was
{{ number(original.decode_tokens_per_s, 0) }}</span></div>
<div><b>{{ number(chosen.prefill_tokens_per_s, 0) }}</b><span>tokens/s reading a prompt, was
{{ number(original.prefill_tokens_per_s, 0) }}</span></div>
""",
    table="""
<thead><tr><th>format</th><th>bits per<br>weight</th><th>size</th><th>perplexity</th><th>loss</th>
<th>bits per<br>byte</th><th>KL, nats<br>per token</th><th>top-1<br>agreement</th>
<th>decode<br>tokens/s</th><th>MBU</th><th>prefill<br>tokens/s</th><th>MFU</th><th>front</th></tr>
</thead>
<tbody>
{% for one in [original] + result.candidates %}
<tr class="{{ "chosen" if one.name == result.chosen else "behind" if one.on_front == false }}">
<td>{{ one.name }}</td><td>{{ number(one.bits_per_weight, 2) }}</td>
<td>{{ bytes(one.file_bytes) }}</td><td>{{ number(one.perplexity, 3) }}</td>
<td>{{ "–" if loop.first else "%+.2f %%" | format(loss(one)) }}</td>
<td>{{ number(one.bits_per_byte, 4) }}</td><td>{{ number(one.kl_divergence, 5) }}</td>
<td>{{ percent(one.top1_agreement, 1) }}</td>
<td>{{ number(one.decode_tokens_per_s, 0) }}</td><td>{{ percent(one.mbu, 0) }}</td>
<td>{{ number(one.prefill_tokens_per_s, 0) }}</td><td>{{ percent(one.mfu, 0) }}</td>
<td>{{ "on it" if one.on_front else "–" }}</td></tr>
""",
    quality="""
<p><b>Quality</b>, through the executor that serves: {{ result.protocol }}. KL divergence and top-1
agreement are to the original, token by token.</p>
""",
    speed="""
<p><b>Speed</b>: one sequence, medians of short rounds in which all models take turns. MBU is the
bytes of weights, keys and values that decoding reads per second, over the bandwidth measured on a
buffer of that size; MFU is the arithmetic of a prefill over the measured peak of the arithmetic
that the linear layers use (int8 for the integer formats).</p>
""",
)

ENCODER = KindParts(
    figures="""
<div><b>{{ number(chosen.cosine_mean, 5) }}</b><span>mean cosine to the original, least
{{ number(chosen.cosine_least, 4) }}</span></div>
{% if chosen.rank_agreement is not none %}<div><b>{{ number(chosen.rank_agreement, 5) }}</b>
<span>rank agreement over all pairs of texts</span></div>{% endif %}
<div><b>{{ number(chosen.texts_per_s, 0) }}</b><span>texts/s, was
{{ number(original.texts_per_s, 0) }}</span></div>
""",
    table="""
<thead><tr><th>format</th><th>bits per<br>weight</th><th>size</th><th>mean<br>cosine</th>
<th>least<br>cosine</th><th>rank<br>agreement</th><th>label<br>agreement</th><th>texts/s</th>
<th>MFU</th><th>front</th></tr>
</thead>
<tbody>
{% for one in [original] + result.candidates %}
<tr class="{{ "chosen" if one.name == result.chosen else "behind" if one.on_front == false }}">
<td>{{ one.name }}</td><td>{{ number(one.bits_per_weight, 2) }}</td>
<td>{{ bytes(one.file_bytes) }}</td>
<td>{{ "–" if loop.first else number(one.cosine_mean, 5) }}</td>
<td>{{ "–" if loop.first else number(one.cosine_least, 4) }}</td>
<td>{{ number(one.rank_agreement, 5) }}</td><td>{{ percent(one.label_agreement, 1) }}</td>
<td>{{ number(one.texts_per_s, 0) }}</td><td>{{ percent(one.mfu, 0) }}</td>
<td>{{ "on it" if one.on_front else "–" }}</td></tr>
""",
    quality="""
<p><b>Quality</b>, through the executor that serves: {{ result.protocol }}. Cosines are those of a
text's two vectors; rank agreement is Spearman's correlation of the similarities of all pairs.</p>
""",
    speed="""
<p><b>Speed</b>: medians of short rounds in which all models take turns. MFU is the arithmetic of
the layers over the measured peak of the arithmetic that the linear layers use (int8 for the integer
formats).</p>
""",
)

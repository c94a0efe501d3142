"""Renders the report: one HTML page that opens without a network."""

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import jinja2
from markupsafe import Markup

from paredown.optimize.report_parts import DECODER, ENCODER
from paredown.shown import shown
from paredown.units import format_bytes, format_rate

_MAX_CHARS = 2_000

_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{ result.model }}: what smaller costs</title>
<style>
:root { --ink: #1f2328; --faint: #59636e; --line: #dde2e7; --paper: #ffffff; --page: #f6f8fa;
  --good: #e3f4ea; --accent: #00724f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --faint: #9198a1; --line: #2a313a;
  --paper: #151b23; --page: #0d1117; --good: #16291f; --accent: #3fb98a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.5;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 56px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 17px; margin: 32px 0 10px; }
p { margin: 0 0 10px; } .faint { color: var(--faint); }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: 18px 20px; overflow-x: auto; }
.card img { display: block; width: 100%; height: auto; }
.figures { display: flex; flex-wrap: wrap; gap: 10px 36px; margin: 14px 0 4px; }
.figures b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.figures span { color: var(--faint); font-size: 13px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 6px; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; font-size: 12.5px; color: var(--faint); vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; } tr:last-child td { border-bottom: 0; }
tr.chosen td { background: var(--good); font-weight: 600; } tr.behind td { color: var(--faint); }
code { font: 13.5px ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; }
pre { margin: 0; padding: 12px 14px; background: var(--page); border: 1px solid var(--line);
  border-radius: 8px; overflow-x: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 0; }
dt { color: var(--faint); } dd { margin: 0; } ul { margin: 0; padding-left: 20px; }
</style>
</head>
<body>
<main>
<h1>{{ result.model }}: what smaller costs</h1>
<p class="faint">Compressed in {{ result.candidates | length }} ways, each verified against the
original and timed on this machine.</p>
<div class="card">
{% if chosen %}
<p>Chosen: <b>{{ chosen.name }}</b>{% if chosen.name in result.mixes %} ({{
result.mixes[chosen.name] }}){% endif %}, {{ rule }}.</p>
{% if result.stopped %}<p>The search was {{ result.stopped }}; it was not written.</p>{% endif %}
<div class="figures">
<div><b>{{ bytes(chosen.file_bytes) }}</b><span>was {{ bytes(original.file_bytes) }}</span></div>
{{ FIGURES }}</div>
{% if result.serve %}<pre><code>{{ result.serve }}</code></pre>{% endif %}
{% else %}
<p>No candidate meets the bounds, so none was chosen. Nearest is <b>{{ result.nearest }}</b>; in its
way:</p><ul>{% for gap in result.missed %}<li><code>{{ gap.bound }}</code>
{{ "%.4g" | format(gap.limit) }}: it has {{ "%.4g" | format(gap.seen) }}</li>{% endfor %}</ul>
{% endif %}
</div>
<h2>The trade-off</h2>
<div class="card"><picture>
<source media="(prefers-color-scheme: dark)" srcset="{{ dark }}">
<img src="{{ light }}" alt="Lost quality against file size and speed">
</picture></div>
<h2>All candidates</h2>
{% if result.note %}<p class="faint">{{ result.note }}</p>{% endif %}
<div class="card"><table>
{{ TABLE }}{% endfor %}
</tbody></table></div>
{% if result.skipped or result.clamped or result.not_tried or result.mixes or result.pruned %}
<h2>Mixes, skipped and clamped</h2>
<div class="card"><ul>
{% for name, words in result.mixes.items() %}<li><b>{{ name }}</b>: {{ words }}</li>{% endfor %}
{% for name, words in result.pruned.items() %}<li><b>{{ name }}</b> {{ words }}</li>{% endfor %}
{% for one in result.not_tried %}<li>not tried <b>{{ one.name }}</b>: {{ one.reason }}</li>
{% endfor %}
{% for one in result.skipped %}<li><b>{{ one.name }}</b>: {{ one.reason }}</li>{% endfor %}
{% for name, tensors in result.clamped.items() %}{% for tensor, count in tensors.items() %}
<li><b>{{ name }}</b>: {{ count }} values of <code>{{ tensor }}</code> are beyond its range and were
clamped</li>{% endfor %}{% endfor %}
</ul></div>
{% endif %}
{% for name, notes in result.notes.items() %}
<details class="card"><summary><b>{{ name }}</b>: what was done otherwise than asked, and how far
searches went</summary><ul>
{% for note in notes %}<li>{{ note }}</li>{% endfor %}
</ul></details>
{% endfor %}
<h2>This machine</h2>
<div class="card"><dl>
<dt>processor</dt><dd>{{ machine.name }}, {{ machine.num_threads }} of {{ machine.num_cores }}
cores, {{ machine.isa }}</dd>
<dt>memory bandwidth</dt><dd>{{ rate(machine.bandwidth_bytes_per_s, "B/s") }}</dd>
<dt>int8 peak</dt><dd>{{ rate(machine.int8_ops_per_s, "op/s") }}</dd>
<dt>bf16 peak</dt><dd>{{ rate(machine.bf16_flops_per_s, "FLOP/s") }}</dd>
<dt>fp32 peak</dt><dd>{{ rate(machine.fp32_flops_per_s, "FLOP/s") }}</dd>
</dl><p class="faint" style="margin-top:10px">Measured in this run with the kernels' own loops.</p>
</div>
<h2>How this was measured</h2>
<div class="card">
{{ QUALITY }}{% if result.calibration %}<p><b>Calibration</b>: {{ result.calibration }}.
{% if result.text_choice_words %}{{ result.text_choice_words }}.{% endif %}</p>{% endif %}
{{ SPEED }}
<p><b>Bits per weight</b>: all stored tensors over all parameters, embeddings and norms included.
<b>Front</b>: no other candidate is at least as good in quality, size and speed and better in one.
<b>Choice</b>: {{ rule }}; those at least 95 % as fast as the fastest count as equally fast.</p>
</div>
</main>
</body>
</html>
"""


def render_report(result: Mapping[str, Any], light_png: bytes, dark_png: bytes) -> str:
    """Renders the page from an OptimizeResult's JSON, with the front's picture for light and
    dark."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, finalize=_finalize
    )
    reference = result["reference"]
    chosen = next((one for one in result["candidates"] if one["name"] == result["chosen"]), None)

    def loss(one: Mapping[str, Any]) -> float:
        if one["perplexity"] is None or reference["perplexity"] is None:
            return float("inf")
        return float(100 * (one["perplexity"] / reference["perplexity"] - 1))

    parts = ENCODER if reference["cosine_mean"] is not None else DECODER
    template = _TEMPLATE
    for name, part in asdict(parts).items():
        template = template.replace(f"{{{{ {name.upper()} }}}}", part.lstrip("\n"))
    return environment.from_string(template).render(
        result=result,
        rule=_rule(result["bounds"]),
        chosen=chosen,
        original=reference,
        machine=result["machine"],
        light=_data_uri(light_png),
        dark=_data_uri(dark_png),
        loss=loss,
        number=_number,
        percent=_percent,
        bytes=format_bytes,
        rate=format_rate,
    )


def _rule(bounds: Mapping[str, Any]) -> str:
    """Returns the rule of the choice, in words."""
    limits = [
        f"{name.replace('_', ' ')} {100 * value:.2g} %"
        if name == "max_quality_loss"
        else f"{name.replace('_', ' ')} {value:g}"
        for name, value in bounds.items()
        if value is not None and name not in ("prompt_tokens", "num_sequences")
    ]
    resources = ("max_mb", "min_decode", "max_first_token_s", "max_memory_mb", "min_texts_per_s")
    best = (
        "the best quality"
        if any(bounds[name] is not None for name in resources)
        else ("the smallest of the fastest")
    )
    return f"{best} within {', '.join(limits)}"


def _finalize(value: object) -> object:
    """Puts names and notes of a model on one line, escaped; `autoescape` escapes for HTML."""
    return shown(value, _MAX_CHARS) if type(value) is str else value


def _data_uri(png: bytes) -> Markup:
    return Markup(f"data:image/png;base64,{base64.b64encode(png).decode()}")


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _percent(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f} %"

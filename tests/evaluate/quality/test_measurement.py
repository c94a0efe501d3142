"""What every verb's JSON says of a model."""

import json
import math

from paredown.evaluate.quality.measurement import Measurement


def test_what_is_not_finite_is_null_so_that_the_json_is_valid() -> None:
    measured = Measurement(
        name="broken",
        linear_dtype="int4",
        bits_per_weight=4.5,
        file_bytes=10,
        perplexity=math.inf,
        bits_per_byte=math.nan,
        kl_divergence=-math.inf,
        mbu=0.5,
        on_front=False,
    )
    fields = json.loads(json.dumps(measured.as_json(), allow_nan=False))
    assert [fields[one] for one in ("perplexity", "bits_per_byte", "kl_divergence")] == [None] * 3
    assert fields["mbu"] == 0.5
    assert fields["on_front"] is False
    assert fields["file_bytes"] == 10

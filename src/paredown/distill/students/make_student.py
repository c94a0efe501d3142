"""Makes the model that a student starts as."""

from dataclasses import replace
from pathlib import Path

from paredown.compress.require_floats import require_floats
from paredown.distill.students.every import every_layer
from paredown.distill.students.from_config import from_config
from paredown.distill.students.kept_width import narrower
from paredown.distill.students.student_choice import StudentChoice
from paredown.distill.students.width import sliced
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.write import write_decoder
from paredown.models.paredown_section import PRUNED, with_key


def make_student(teacher: Checkpoint, choice: StudentChoice, output: Path, seed: int = 0) -> None:
    """Writes the folder `output`, an ordinary checkpoint, with the student that `choice` names; a
    choice of a folder is one already. `seed` is that of a config's random weights.

    Raises ConfigError for layers, a width or a config that do not fit the teacher, UnsupportedError
    for what cannot be made of it, CheckpointError for a config that cannot be read, CapacityError
    for one that does not fit in memory, and OutputError.
    """
    assert choice.folder is None
    if choice.config is not None:
        made = from_config(teacher, choice.config, seed)
        write_decoder(made.decoder, made.shape, output, dtype=made.dtype)
        return
    require_floats(teacher)
    left = teacher if choice.every is None else every_layer(teacher, choice.every)
    left = replace(left, config=with_key(left.config, PRUNED, None), pruned={})
    decoder = Decoder.from_checkpoint(left)
    if choice.width is not None:
        decoder = sliced(decoder, narrower(left, choice.width))
    write_decoder(decoder, left, output)

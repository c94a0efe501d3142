"""The texts that an encoder learns from in a job."""

from paredown.distill.data.encoder_data import EncoderData, encoder_data, read_examples
from paredown.distill.data.training_data import TrainingDataConfig
from paredown.distill.encoder_rows import EncoderRows, LabelledText
from paredown.evaluate.texts.encoder_texts import MAX_TEXT_TOKENS, random_texts, training_texts
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer
from paredown.models.text.whole_text import WholeText


def encoder_texts(model: Checkpoint, config: TrainingDataConfig, num_tokens: int) -> EncoderData:
    """Returns at least `num_tokens` tokens of whole texts, if there are so many: those of the
    config's files, else the classic books' sentences, else random tokens. Raises what
    `encoder_data` and `read_examples` raise."""
    tokenizer = Tokenizer.open(model.path)
    most = min(MAX_TEXT_TOKENS, config.row_tokens, model.spec.max_positions)
    whole = WholeText(tokenizer=tokenizer, max_tokens=most)
    paths = config.paths or tuple(training_texts())
    if not paths:
        texts = random_texts(whole, num_tokens, model.spec.vocab_size)
        rows = EncoderRows.pack(
            (LabelledText(token_ids=one.token_ids) for one in texts.texts), config.row_tokens
        )
        return EncoderData(rows=rows, held_out=None, source=texts.source)
    settings = model.encoder_settings
    return encoder_data(
        read_examples(paths),
        config,
        whole,
        () if settings is None else settings.labels,
        num_tokens=num_tokens,
        source=" and ".join(path.name for path in paths),
    )

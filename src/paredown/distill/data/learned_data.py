"""LearnedData: what a student learns from, tokens to predict or whole texts."""

from paredown.distill.data.encoder_data import EncoderData
from paredown.distill.data.training_data import TrainingData

LearnedData = TrainingData | EncoderData

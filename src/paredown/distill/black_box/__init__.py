"""Black-box distillation: training data from a teacher that can only be asked over HTTP."""

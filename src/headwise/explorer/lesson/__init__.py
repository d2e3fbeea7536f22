"""The lesson: a warm-up and seven steps on the learner's sentence and a model's real numbers."""

"""The lesson: seven steps on the learner's own sentence and a model's real numbers."""

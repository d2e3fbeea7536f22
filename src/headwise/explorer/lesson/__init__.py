"""The guided lesson: seven steps on the learner's own sentence."""

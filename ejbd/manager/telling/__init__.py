"""Answers to questions: why a job waits, what its moves cost."""

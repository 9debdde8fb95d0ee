"""What users and operators ask of the manager: each request is a transaction, or an answer to a question."""

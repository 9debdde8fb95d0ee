"""What is free for a job, and what a policy answers about it."""

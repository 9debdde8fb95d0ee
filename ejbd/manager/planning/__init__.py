"""What the policies are asked and what is kept of their answers: room, decisions, explanations."""

"""What the policies are asked, and what follows from their answers."""

"""What happens to a vocabulary after it was learned."""

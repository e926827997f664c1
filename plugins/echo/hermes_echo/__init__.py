"""The echo agent."""

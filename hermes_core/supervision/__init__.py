"""Who holds the home, how to talk to it, and which process is which."""

"""What the app shows and what is selected, without widgets."""

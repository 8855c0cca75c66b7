"""What ran when: busy and idle, gaps and their classes, launches, steps."""

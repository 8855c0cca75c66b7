"""What ran when: busy and idle time, gaps and their classes, launches, steps."""

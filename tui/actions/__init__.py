"""The actions of keys and the answers to panels: a controller each for runs, pages and files."""

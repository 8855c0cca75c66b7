"""`claims`: published figures of the field, measured again."""

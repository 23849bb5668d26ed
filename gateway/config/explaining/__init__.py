"""What a configuration does, in sentences, and its schema."""

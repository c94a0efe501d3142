"""A folder that asks for its inputs to be rounded otherwise than its formats say."""

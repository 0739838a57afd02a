"""What a call goes through between its reading and its answer."""

ANSWER: int = 42

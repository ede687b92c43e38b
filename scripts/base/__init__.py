"""The PyTorch that is built upon: fetched, verified, laid out, its symbols indexed."""

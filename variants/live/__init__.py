"""The worker process of the app: it steps a variant, publishes figures and obeys."""

"""What is measured around decodescope. It imports the product, and is never in the wheel."""

"""What a trace says: readers, timeline arithmetic, gaps, launches, reports and exporters.

Nothing here but `decodescope.analyzer.capture` imports torch: a laptop without a GPU opens any
recording.
"""

"""Graphs in 8-bit integers. In: a float32 graph and samples of its inputs. Out: the same graph,
its convolutions and matrix products on bytes, and how far that is from the original.

    calibrate   the range of every value on the samples
    plan        which contractions multiply bytes, which values are kept as bytes, by which steps
    errors      what each of them would lose
    linear      sums of bytes times factors: how requantization, biases and residuals become one
    lower       the graph that does so
    quantize    all of these
    accuracy    how much the outputs changed
"""

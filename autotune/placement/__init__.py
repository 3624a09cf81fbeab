"""Where tensors lie and when they are used: layouts, halos, padding, views, reuse, memory."""

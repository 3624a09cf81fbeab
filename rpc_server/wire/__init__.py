"""The wire protocol: messages, their bounds, frames and sockets."""

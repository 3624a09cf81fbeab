"""What goes over a link: messages, their bounds, frames and sockets."""

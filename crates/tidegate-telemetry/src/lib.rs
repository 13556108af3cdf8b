//! What operators see of a node: metrics and logs.

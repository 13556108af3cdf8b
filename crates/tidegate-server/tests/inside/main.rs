//! What cannot be provoked from outside a node: decisions that break, stores that do not answer, and clocks that jump.

mod node; // a node in this process, at a time that only the test moves

mod broken; // decisions that break
mod clocks; // clocks that jump
mod counters; // counters that are looked at and reset
mod store; // a store that does not answer
mod together; // calls that come together
